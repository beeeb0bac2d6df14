package probing

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// target is the task that probes one target.
type target struct {
	prober *Prober
	key    Key
	// wanted is what the next run uses.
	wanted atomic.Pointer[settings]
	// used is what the last run used. It belongs to the scheduler's worker.
	used settings
	// slow: the last listing took too long. It belongs to the scheduler's worker, too.
	slow bool
	// refused is the answer to the last listing that asked to be left alone until then. Both belong to the worker.
	refused probe.Outcome
	until   time.Time
}

// settings are immutable, but for what clients keep between runs.
type settings struct {
	internal, external endpoint
	timeout            time.Duration
	nodeLeases         *probe.LeaseTerms
}

// endpoint is one side of a target.
type endpoint struct {
	version probe.Version
	client  *client
}

// run probes from inside, and if that was a success, from outside.
func (t *target) run(ctx context.Context) time.Time {
	clock := t.prober.Clock
	run := probe.Run{Started: clock.Now()} // before its credentials are picked: what was set since is newer
	t.rotate()
	run.Internal = t.ask(ctx, "internal", t.used.internal.client)
	if probe.GoesOn(run.Internal) {
		external := t.ask(ctx, "external", t.used.external.client)
		run.External = &external
		run.Witnessed = external.Result() == probe.Failure && t.prober.Witnesses.Vouch(ctx, clock.Now())
		if t.used.nodeLeases != nil && probe.GoesOn(external) {
			t.list(ctx, &run)
		}
	}
	run.Ended = clock.Now()
	if ctx.Err() != nil { // the Prober stops, and a run that was cut short found nothing
		return run.Ended
	}
	return t.prober.Handler.Observe(t.key, run)
}

func (t *target) ask(ctx context.Context, side string, c *client) probe.Outcome {
	clock := t.prober.Clock
	began := clock.Now()
	outcome := c.probe(ctx, t.used.timeout, clock.Now)
	observeProbe(side, outcome, clock.Since(began))
	return outcome
}

// maxListing is how long a listing may hold its place: the leases of 5,000 nodes take 100 pages.
const maxListing = 10 * time.Second

// list adds the leases to a run, or why they can't be listed.
func (t *target) list(ctx context.Context, run *probe.Run) {
	ctx, cancel := context.WithTimeout(ctx, t.used.timeout)
	defer cancel()
	clock := t.prober.Clock
	began := clock.Now()
	if began.Before(t.until) {
		run.Unlisted = t.refused
		return
	}
	free, ok := t.prober.listings.take(ctx, t.key.Namespace, t.slow)
	if !ok {
		run.Unlisted = probe.Outcome{Class: probe.NotRun, Detail: "too many other clusters' leases are being listed"}
		return
	}
	defer free()
	ctx, cancelList := context.WithTimeout(ctx, t.prober.listWithin)
	defer cancelList()
	defer func() { t.slow = ctx.Err() != nil }()
	found, err := t.used.external.client.nodeLeases(ctx, clock, min(t.used.timeout-clock.Since(began), t.prober.listWithin), *t.used.nodeLeases)
	if err != nil {
		t.used.external.client.close() // it may have broken, or still receive
		run.Unlisted = classify(err)
		t.refused, t.until = run.Unlisted, clock.Now().Add(run.Unlisted.RetryAfter)
		observeProbe("leases", run.Unlisted, clock.Since(began))
		return
	}
	now := clock.Now()
	observeProbe("leases", probe.Outcome{Class: probe.OK}, now.Sub(began))
	run.Leases, run.ServerTime = found.nodes, found.serverTime.Add(now.Sub(found.readAt))
}

// rotate takes over what was set, and closes connections that were made with other credentials.
func (t *target) rotate() {
	before, now := t.used, *t.wanted.Load()
	t.used = now
	if before.internal.client != now.internal.client {
		before.internal.client.close()
	}
	if before.external.client != now.external.client {
		before.external.client.close()
	}
}

func (t *target) close() {
	t.used.internal.client.close()
	t.used.external.client.close()
}
