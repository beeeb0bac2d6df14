package kube

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	minClockStep       = 5 * time.Second
	deferAfterStep     = 5 * time.Minute
	clockCheckInterval = time.Second
)

// ClockStep notices that this machine's wall clock was set: every deadline computed from it moved too. It is a manager
// Runnable.
type ClockStep struct {
	// OnStep is called with the time until which nothing new should be done.
	OnStep func(until time.Time)
	// Now and Ticks default to the machine's.
	Now   func() (wall time.Time, monotonic time.Duration)
	Ticks <-chan time.Time
}

// NeedLeaderElection is false: a standby must not trust its clock either when it takes over.
func (*ClockStep) NeedLeaderElection() bool { return false }

// Start looks until ctx ends.
func (c *ClockStep) Start(ctx context.Context) error {
	now, ticks := c.Now, c.Ticks
	if now == nil {
		start := time.Now()
		now = func() (time.Time, time.Duration) { t := time.Now(); return t.Round(0), t.Sub(start) }
	}
	if ticks == nil {
		ticker := time.NewTicker(clockCheckInterval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	wall, mono := now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		w, m := now()
		if step := w.Sub(wall) - (m - mono); step.Abs() > minClockStep {
			log.FromContext(ctx).Info("The clock stepped; nothing new is done for a while", "step", step.String(), "until", w.Add(deferAfterStep))
			c.OnStep(time.Now().Add(deferAfterStep))
		}
		wall, mono = w, m
	}
}

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
