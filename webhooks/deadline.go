package webhooks

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

const (
	// defaultTimeout is what we ask of the API server in the webhook's configuration.
	defaultTimeout = 5 * time.Second
	// longestTimeout is the most that the API server allows.
	longestTimeout = 30 * time.Second
)

// withDeadline takes the API server's own deadline, which it sends as ?timeout= and controller-runtime ignores. A tenth
// of it is kept for the way back: an answer that comes too late is a refusal without a reason.
//
// A manager that ends finishes what it has been asked, though controller-runtime ends every request's context with it: an
// evaluation that is cut short refuses a good object.
func withDeadline(ctx context.Context, r *http.Request) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeFor(r))
	context.AfterFunc(r.Context(), func() { // net/http ends the request's context when the handler returns
		if !serverEnds(r) {
			cancel()
		}
	})
	return ctx
}

// timeFor a request, from its beginning to its answer.
func timeFor(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 || timeout > longestTimeout {
		timeout = defaultTimeout
	}
	return timeout * 9 / 10
}

// timely cuts off whoever takes longer to send a request than there is to answer it: controller-runtime's server waits for
// a body as long as the client likes, and keeps what has come so far in memory.
func timely(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(clock.RealClock{}.Now().Add(timeFor(r))); err != nil {
			http.Error(w, "set a deadline for the request's body: "+err.Error(), http.StatusInternalServerError)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// serverEnds says that the server's context, of which a request's is made, has ended.
func serverEnds(r *http.Request) bool {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	return ok && server.BaseContext != nil && server.BaseContext(nil).Err() != nil
}
