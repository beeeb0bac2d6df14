package shoots

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

func TestAConnectionThatIsLostAgainAndAgainGivesTheSameError(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	lost := func(port int) error {
		from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: port}
		return &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: &net.OpError{Op: "read", Net: "tcp", Source: from, Addr: at, Err: syscall.ECONNRESET}}
	}
	refused := fmt.Errorf("ask: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED})
	for err, want := range map[error]string{
		lost(40001):      "read tcp 192.0.2.1:443: connection reset by peer",
		lost(40002):      "read tcp 192.0.2.1:443: connection reset by peer",
		refused:          "ask: dial tcp 192.0.2.1:443: connection refused",
		errors.New("no"): "no",
	} {
		if got := stableError(err).Error(); got != want {
			t.Errorf("it is %s", got)
		}
	}
}

// A client of HTTP counts its time by itself, as while it finds out which kinds a server has.
func TestATimeoutHasOneTextWhoeverMeasuresIt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	client := &http.Client{Timeout: time.Millisecond}
	ask := func() error {
		response, err := client.Get(server.URL) //nolint:noctx // the client's own time is what this is about
		if err == nil {
			_ = response.Body.Close()
		}
		return fmt.Errorf("find the kind: %w", err)
	}
	health := NewWatchHealth(time.Hour, clock.RealClock{}, func() {})
	follows := health.Observe(&toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, ask() },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, ask() },
	})
	const want = "no answer within 1h0m0s"
	if _, err := follows.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil || err.Error() != want {
		t.Errorf("a list: %v", err)
	}
	if _, err := follows.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil || err.Error() != want {
		t.Errorf("a watch: %v", err)
	}
}
