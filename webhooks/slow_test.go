package webhooks

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// TestAClientThatSendsSlowlyIsCutOffAndOthersAreServed asks the server that the manager runs, by both protocols.
func TestAClientThatSendsSlowlyIsCutOffAndOthersAreServed(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			url, client := serve(t, protocol)
			body, sends := io.Pipe()
			defer func() { _ = sends.Close() }()
			go func() { _, _ = io.WriteString(sends, review("CREATE", goodSet, "null")[:100]) }() // and no more
			cut := make(chan string)
			go func() {
				request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"?timeout=1s", body)
				request.Header.Set("Content-Type", "application/json")
				cut <- answerOf(client.Do(request))
			}()
			for served := 0; ; served++ {
				select {
				case says := <-cut:
					if !strings.Contains(says, "i/o timeout") || !strings.Contains(says, protocol) {
						t.Errorf("the slow client is told %s", says)
					}
					if served == 0 {
						t.Error("nobody was served meanwhile")
					}
					return
				default:
					if says := answerOf(client.Post(url+"?timeout=5s", "application/json", strings.NewReader(review("CREATE", goodSet, "null")))); !strings.Contains(says, `"allowed":true`) {
						t.Fatalf("another client is told %s", says)
					}
				}
			}
		})
	}
}

// TestWhoIsRefusedIsToldWhy: an API server passes a Status on to whoever asked it, and asks again by itself after Retry-After.
func TestWhoIsRefusedIsToldWhy(t *testing.T) {
	url, client := serve(t, "HTTP/2.0")
	said := func(query string, body io.Reader, size int64) string {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url+query, body)
		request.ContentLength = size
		response, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, " ", response.Header.Get("Retry-After"), " ", strings.TrimSpace(string(text)), " ", err)
	}
	// Of large ones there is one at a time, and this one's body doesn't come.
	body, sends := io.Pipe()
	defer func() { _ = sends.CloseWithError(io.ErrUnexpectedEOF) }()
	late := make(chan string)
	go func() { late <- said("?timeout=1s", body, largestBody) }()
	_, _ = io.WriteString(sends, strings.Repeat(" ", 4*streamBytes)) // of which some is only taken once it has the place
	for _, c := range []struct {
		bytes int
		want  string
	}{
		{ordinaryBody + 1, `429 1 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the webhook has as many reviews as it can judge; try again in a moment","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429} <nil>`},
		{10, `400  {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the review is no JSON object","reason":"BadRequest","code":400} <nil>`},
		{largestBody + 1, `413  {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Request entity too large: the review has 7340033 bytes; it may have 7340032","reason":"RequestEntityTooLarge","code":413} <nil>`},
	} {
		if got := said("", strings.NewReader(strings.Repeat("-", c.bytes)), int64(c.bytes)); got != c.want {
			t.Errorf("%d bytes:\n got %s\nwant %s", c.bytes, got, c.want)
		}
	}
	const want = `504 1 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: the review did not come whole within 900ms: i/o timeout","reason":"Timeout","details":{"retryAfterSeconds":1},"code":504} <nil>`
	if got := <-late; got != want {
		t.Errorf("the one that doesn't come:\n got %s\nwant %s", got, want)
	}
}

// TestAConnectionIsGoodAfterASlowReview: net/http takes a deadline that passes while a handler works for the end of the connection.
func TestAConnectionIsGoodAfterASlowReview(t *testing.T) {
	slow := make(chan struct{})
	served := httptest.NewServer(limitRequests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("timeout") == "100ms" {
			<-slow
		}
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})))
	defer served.Close()
	late := time.AfterFunc(300*time.Millisecond, func() { close(slow) })
	defer late.Stop()
	for _, timeout := range []string{"100ms", "5s"} {
		response, err := served.Client().Post(served.URL+"?timeout="+timeout, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("with %s: %s", timeout, response.Status)
		}
	}
}

func answerOf(response *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%s %s %v", response.Proto, text, err)
}

// serve starts a webhook server as the manager does, and gives a client that speaks one protocol.
func serve(t *testing.T, protocol string) (url string, client *http.Client) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	certificate := certified.TLS.Certificates[0]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server := NewServer("127.0.0.1", port, func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
	})
	server.Register(Path, limitRequests(newWebhook(t, facts{forecast: condition.Forecast{Limit: 1, UnionLimit: 1}})))
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Start(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	transport := certified.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = protocol == "HTTP/2.0"
	t.Cleanup(transport.CloseIdleConnections)
	for server.StartedChecker()(nil) != nil { // until the test's deadline
		runtime.Gosched()
	}
	return fmt.Sprintf("https://127.0.0.1:%d%s", port, Path), &http.Client{Transport: transport}
}
