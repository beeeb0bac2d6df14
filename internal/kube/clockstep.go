package kube

import (
	"context"
	"time"

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
