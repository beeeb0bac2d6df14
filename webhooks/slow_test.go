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
	body, sends := io.Pipe()
	defer func() { _ = sends.CloseWithError(io.ErrUnexpectedEOF) }()
	go func() { // a large one takes the only place for such
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		request.ContentLength = largestBody
		_ = answerOf(client.Do(request))
	}()
	_, _ = io.WriteString(sends, strings.Repeat(" ", 4*streamBytes)) // of which some is only taken once it has the place
	for _, c := range []struct {
		bytes int
		want  string
	}{
		{ordinaryBody + 1, `429 1 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the webhook has as many reviews as it can judge; try again in a moment","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}`},
		{largestBody + 1, `413  {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Request entity too large: the review has 7340033 bytes; it may have 7340032","reason":"RequestEntityTooLarge","code":413}`},
	} {
		response, err := client.Post(url, "application/json", strings.NewReader(strings.Repeat(" ", c.bytes)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if got := fmt.Sprint(response.StatusCode, " ", response.Header.Get("Retry-After"), " ", strings.TrimSpace(string(text))); err != nil || got != c.want {
			t.Errorf("%d bytes: %v\n got %s\nwant %s", c.bytes, err, got, c.want)
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
	server.Register(Path, bounding(newWebhook(t, facts{preview: condition.Preview{Limit: 1, UnionLimit: 1}})))
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
