package kube

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// ServerClock knows the API server's clock from the Date header of its answers, to the second. Reporters' heartbeats are
// compared with it and not with ours: nodes and API server may agree where we are off.
type ServerClock struct {
	Clock clock.PassiveClock
	seen  atomic.Pointer[serverTime]
}

type serverTime struct{ server, local time.Time }

// Watch reads the time from the response to every request of cfg's clients.
func (c *ServerClock) Watch(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil {
				c.record(response.Header.Get("Date"))
			}
			return response, err
		})
	})
}

func (c *ServerClock) record(date string) {
	if server, err := http.ParseTime(date); err == nil {
		c.seen.Store(&serverTime{server: server, local: c.Clock.Now()})
	}
}

// Now is the API server's time, zero before its first answer.
func (c *ServerClock) Now() time.Time {
	s := c.seen.Load()
	if s == nil {
		return time.Time{}
	}
	return s.server.Add(c.Clock.Since(s.local))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
