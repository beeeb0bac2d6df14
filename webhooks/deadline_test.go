package webhooks

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestAManagerThatEndsFinishesWhatItWasAsked has the server's context end, as a manager's does, while a request is under way.
func TestAManagerThatEndsFinishesWhatItWasAsked(t *testing.T) {
	running, end := context.WithCancel(context.Background())
	defer end()
	asked, judged := make(chan struct{}), make(chan error)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := withDeadline(r.Context(), r)
		close(asked)
		<-r.Context().Done()
		select {
		case <-ctx.Done():
			judged <- ctx.Err()
		case <-time.After(50 * time.Millisecond):
			judged <- nil
		}
		w.WriteHeader(http.StatusOK)
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return running }
	server.Start()
	defer server.Close()
	go func() {
		if response, err := http.Get(server.URL); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-asked
	end()
	if err := <-judged; err != nil {
		t.Errorf("the evaluation was cut short: %v", err)
	}
}
