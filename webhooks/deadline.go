package webhooks

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// defaultTimeout is what we ask of the API server in the webhook's configuration. Whoever says they wait longer gets no more.
const defaultTimeout = 5 * time.Second

// withDeadline takes the API server's own deadline, which it sends as ?timeout= and controller-runtime ignores. A tenth
// of it is kept for the way back: an answer that comes too late is a refusal without a reason.
//
// A manager that ends finishes what it has been asked, though controller-runtime ends every request's context with it: an
// evaluation that is cut short refuses a good object.
func withDeadline(ctx context.Context, r *http.Request) context.Context {
	begun, ok := ctx.Value(begunKey{}).(time.Time)
	if !ok {
		begun = clock.RealClock{}.Now()
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), begun.Add(timeFor(r)))
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
	if err != nil || timeout <= 0 || timeout > defaultTimeout {
		timeout = defaultTimeout
	}
	return timeout * 9 / 10
}

// serverEnds says that the server's context, of which a request's is made, has ended.
func serverEnds(r *http.Request) bool {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	return ok && server.BaseContext != nil && server.BaseContext(nil).Err() != nil
}
