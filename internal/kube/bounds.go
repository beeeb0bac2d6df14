package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// BoundRequests has every request of cfg's clients end, also those that nobody set a deadline for: Events, and the lists that a cache
// begins with, after most. A watch may last, but must begin by then.
func BoundRequests(cfg *rest.Config, most time.Duration) {
	late := fmt.Errorf("the API server doesn't answer within %s", most)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			ctx, end := context.WithCancelCause(request.Context())
			timer := time.AfterFunc(most, func() { end(late) })
			response, err := next.RoundTrip(request.WithContext(ctx))
			if err != nil {
				timer.Stop()
				defer end(nil)
				return nil, timeoutOr(ctx, late, err)
			}
			if watches(request) {
				timer.Stop()
			}
			response.Body = &boundedBody{ReadCloser: response.Body, why: func(err error) error { return timeoutOr(ctx, late, err) }, end: func() {
				timer.Stop()
				end(nil)
			}}
			return response, nil
		})
	})
}

func watches(request *http.Request) bool {
	watch := request.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// timeoutOr is why a request failed: that it was late says more than that it was ended.
func timeoutOr(ctx context.Context, late, err error) error {
	if errors.Is(context.Cause(ctx), late) {
		return late
	}
	return err
}

// boundedBody is the body of an answer, which is to be read in time, too.
type boundedBody struct {
	io.ReadCloser
	why func(error) error
	end func()
}

func (b *boundedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && err != io.EOF { //nolint:errorlint // readers give it unwrapped
		err = b.why(err)
	}
	return n, err
}

func (b *boundedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
