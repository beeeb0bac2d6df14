package probeconfig

import (
	"time"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/probing"
)

// Runs takes in what the probes find. It is the Prober's Handler: it only remembers, and wakes who acts.
type Runs struct {
	Observer *Observer
}

// Observe takes in a run and says when the next one is.
func (r *Runs) Observe(key probing.Key, run probe.Run) (next time.Time) {
	t := r.Observer.targets.get(key)
	if t == nil {
		return run.Ended.Add(time.Minute) // its removal is on its way
	}
	t.mu.Lock()
	if run.Started.Before(t.validFrom) {
		t.mu.Unlock()
		return run.Ended
	}
	c, before := t.config, t.state
	t.state = before.After(c, run, t.seed())
	after, at := t.state, t.fleetKey()
	t.secrets.doubted = t.secrets.doubted || doubts(run)
	wake := after.Direction == probe.Down || after.Direction == probe.Up && t.down() || t.secrets.doubted || t.unfinished()
	opened := r.Observer.fleet().Observe(at, &after, run.Ended) // with t.mu: what ends the probes tells the fleet after it
	t.mu.Unlock()
	if opened {
		r.Observer.requestConfigs() // it holds them all
	}
	if wake {
		r.Observer.requestTarget(key)
	}
	if turned(c, before, after) {
		r.Observer.requestConfig(key.Config)
	}
	return after.NextRun
}

// doubts: the API server didn't take the credentials, or showed a certificate that they don't trust; they may have been
// rotated.
func doubts(run probe.Run) bool {
	doubtful := func(o probe.Outcome) bool {
		return o.Class == probe.Unauthorized || o.Class == probe.Forbidden || o.Class == probe.TLS
	}
	return doubtful(run.Internal) || run.External != nil && doubtful(*run.External)
}

// turned says whether a run changed what the status tells.
func turned(c *probe.Config, before, after probe.State) bool {
	counts := func(a, b probe.Counts) bool {
		return a.Successes != b.Successes || a.Errors != b.Errors || a.LastError != b.LastError
	}
	return counts(before.Internal, after.Internal) || counts(before.External, after.External) || counts(before.Leases, after.Leases) ||
		before.UnhealthySince.IsZero() != after.UnhealthySince.IsZero() || before.HealthySince.IsZero() != after.HealthySince.IsZero() ||
		before.InternalUndetermined(c).IsZero() != after.InternalUndetermined(c).IsZero() ||
		before.ExternalUndetermined(c).IsZero() != after.ExternalUndetermined(c).IsZero() ||
		before.OuterUnhealthy(c) != after.OuterUnhealthy(c) || before.LeasesTell(c) != after.LeasesTell(c)
}
