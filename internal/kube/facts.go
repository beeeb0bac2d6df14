package kube

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// HistoryLogger names the logger of the audit trail, by which its lines are found in managers' logs.
const HistoryLogger = "history"

// Facts is what admission and controllers know of the cluster, kept up to date by informers.
type Facts struct {
	Fleet  *condition.Fleet
	Weeder *weeder.State
	// Targets are those of all ProbeConfigs; only the leader, whose probes run, knows how they are.
	Targets *probe.Fleet
	// Timings of all that follow the facts. The zero value is production's.
	Timings timing.Timings
	Clock   clock.PassiveClock
	Server  *ServerClock

	lastNodeEvent atomic.Pointer[time.Time]
	watchFailures atomic.Int64
}

// RecordNodeEvent notes that the watch of nodes delivered an event, which proves that it is alive.
func (f *Facts) RecordNodeEvent() {
	now := f.Clock.Now()
	f.lastNodeEvent.Store(&now)
}

// RecordWatchFailure notes that a watch of any kind failed: events may be missing.
func (f *Facts) RecordWatchFailure() { f.watchFailures.Add(1) }

// WatchFailures counts them.
func (f *Facts) WatchFailures() int64 { return f.watchFailures.Load() }

// Moment is now, by our clock and the API server's.
func (f *Facts) Moment() timing.Moment {
	return timing.Moment{Now: f.Clock.Now(), Server: f.Server.Now()}
}

// Synced says whether every informer behind the facts has synced.
func (f *Facts) Synced() bool { return f.Fleet.Synced() && f.Weeder.Synced() }

// DeferActsUntil lets nothing new be done before t.
func (f *Facts) DeferActsUntil(t time.Time) {
	f.Fleet.DeferActsUntil(t)
	f.Weeder.DeferActsUntil(t)
	f.Targets.SuspendScaleDown(t)
}

// Age is how long ago the watch of nodes last delivered anything; a day when it never did.
func (f *Facts) Age(now time.Time) time.Duration {
	heard := f.lastNodeEvent.Load()
	if heard == nil {
		return 24 * time.Hour
	}
	return max(0, now.Sub(*heard))
}

// Nodes counts those of which limits take a share.
func (f *Facts) Nodes() int {
	return f.Fleet.Usage().Total
}

// ForecastConditionSet is what a set would do now.
func (f *Facts) ForecastConditionSet(set *v1alpha1.ConditionSet, limits limit.Limits, now time.Time) condition.Forecast {
	return f.Fleet.Forecast(set, limits, timing.Moment{Now: now, Server: f.Server.Now()})
}

// ForecastWeederConfig is what a WeederConfig would do now.
func (f *Facts) ForecastWeederConfig(wc *v1alpha1.WeederConfig, limits limit.Limits, now time.Time) weeder.Forecast {
	return f.Weeder.Forecast(wc, limits, timing.Moment{Now: now, Server: f.Server.Now()})
}

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

// ServerClock knows the API server's clock from the Date header of its answers, which is cut to the second: of all the times that they allow
// it is the earliest, which comes closer with each answer. Reporters' heartbeats are compared with it and not with ours: nodes and API
// server may agree where we are off.
type ServerClock struct {
	Clock clock.PassiveClock

	mu   sync.Mutex
	seen serverTime // needs mu; zero before the first answer
}

type serverTime struct{ server, local time.Time }

// Watch reads the time from the response to every request of cfg's clients.
func (c *ServerClock) Watch(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			sent := c.Clock.Now()
			response, err := next.RoundTrip(request)
			if err == nil {
				c.record(response.Header.Get("Date"), sent)
			}
			return response, err
		})
	})
}

// record takes in the date of the answer to a request. One that is later than the estimate raises it. An earlier one disproves it only where
// it is a second or more before what the estimate was when the request was sent: by less than another second our clock is faster than the
// server's, by more that was set back.
func (c *ServerClock) record(date string, sent time.Time) {
	server, err := http.ParseTime(date)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	switch ahead := c.at(sent).Sub(server.Add(time.Second)); {
	case c.at(now).Before(server), ahead >= time.Second:
		c.seen = serverTime{server: server, local: now}
	case ahead >= 0:
		c.seen.server = c.seen.server.Add(-ahead - 1)
	}
}

// Now is the API server's time, zero before its first answer.
func (c *ServerClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(c.Clock.Now())
}

// at is the API server's time at one of ours. It needs mu.
func (c *ServerClock) at(local time.Time) time.Time {
	if c.seen.server.IsZero() {
		return time.Time{}
	}
	return c.seen.server.Add(local.Sub(c.seen.local))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
