package kube

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

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
func (f *Facts) Moment() condition.Moment {
	return condition.Moment{Now: f.Clock.Now(), Server: f.Server.Now()}
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
	return f.Fleet.Forecast(set, limits, condition.Moment{Now: now, Server: f.Server.Now()})
}

// ForecastWeederConfig is what a WeederConfig would do now.
func (f *Facts) ForecastWeederConfig(wc *v1alpha1.WeederConfig, limits limit.Limits, now time.Time) weeder.Forecast {
	return f.Weeder.Forecast(wc, limits, weeder.Moment{Now: now, Server: f.Server.Now()})
}
