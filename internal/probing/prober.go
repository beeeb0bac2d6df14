// Package probing probes API servers: many targets, at their times, from a bounded pool of workers. A [Prober] has targets and reports the
// outcome of each run to a [Handler], which decides what follows. Its parts are the scheduler, which runs tasks when they are due, and the
// client, which makes one probe.
//
//	Set ──> due ──(worker)──> internal probe ──ok──> external probe ──ok──> node leases ──> Observe ──> due at its time
//	                               └──failed──────────────┴──failed (witnesses are asked)───────^
//
// Begin to read at target.run.
package probing

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// Key is one target of one ProbeConfig, with whose namespaceSelector each selected namespace is one: the namespace, and for a name the
// config's namespace/name.
type Key = types.NamespacedName

// Target is one API server, probed from two sides.
type Target struct {
	// Internal and External are kubeconfigs, which aren't kept.
	Internal, External []byte
	// Timeout of each probe, and of listing leases.
	Timeout time.Duration
	// NodeLeases has the leases of the cluster's nodes listed after each external probe that succeeds; nil: they aren't listed.
	NodeLeases *probe.LeaseSettings
}

// Handler handles the result of each run.
type Handler interface {
	// Observe says when to run next; it will be a second from now at least. It is called from many goroutines at once, but
	// never concurrently for one key, and must not block. It may still be called for a run that was in progress when its target was updated
	// or removed.
	Observe(key Key, run probe.Run) (next time.Time)
}

// workers is how many runs there may be at once, not counting those that wait for a slow server, of which there may be as many as targets.
const workers = 256

// Prober runs the probes of all targets. Set its fields before Start.
type Prober struct {
	Handler Handler
	// Policy says which addresses are dialled.
	Policy kubeconfig.Policy
	// Witnesses are asked when an external probe fails. Default: an empty set.
	Witnesses *Witnesses
	// RedialEvery is after how many runs a probe dials a new connection even though the old one works. Default: 6, which detects within a
	// minute that new connections fail, at an interval of 10 s.
	RedialEvery int
	// Clock is the real one by default.
	Clock clock.WithTicker

	scheduler *scheduler
	listSlots *listSlots
	// listTimeout bounds a listing, whatever a config's probeTimeout is.
	listTimeout time.Duration
}

// Init sets defaults. Afterwards targets may be set; they run once the Prober starts.
func (p *Prober) Init() *Prober {
	if p.RedialEvery == 0 {
		p.RedialEvery = 6
	}
	if p.Clock == nil {
		p.Clock = clock.RealClock{}
	}
	if p.Witnesses == nil {
		p.Witnesses = (&Witnesses{}).Init()
	}
	p.listSlots, p.listTimeout = newSlots(), maxListing
	p.scheduler = newScheduler(p.Clock, workers, observeLateness)
	return p
}

// Start runs until ctx ends and all runs have ended.
func (p *Prober) Start(ctx context.Context) error {
	p.scheduler.run(ctx)
	return nil
}

// NeedLeaderElection is true: a standby's probes would only add load.
func (p *Prober) NeedLeaderElection() bool { return true }

// Set adds a target, which first runs at that time, or updates it; then it runs by that time at the latest. Connections
// are kept where the Secret is the same. The error is a [kubeconfig.Refusal]; then the target isn't probed until it is set
// again. A key has one caller at a time.
func (p *Prober) Set(key Key, spec Target, first time.Time) error {
	known := p.target(key)
	wanted, err := p.prepare(known, spec)
	if err != nil {
		p.Remove(key)
		return err
	}
	if known != nil {
		known.next.Store(wanted)
		p.scheduler.advance(key, first)
		return nil
	}
	t := &target{prober: p, key: key}
	t.next.Store(wanted)
	p.scheduler.add(key, t, first)
	return nil
}

// target is the one of a key, nil when it isn't probed.
func (p *Prober) target(key Key) *target {
	t, _ := p.scheduler.task(key).(*target)
	return t
}

// prepare makes clients for the credentials that aren't known yet.
func (p *Prober) prepare(known *target, spec Target) (*settings, error) {
	had := &settings{}
	if known != nil {
		had = known.next.Load()
	}
	internal, err := p.endpoint(had.internal, spec.Internal)
	if err != nil {
		return nil, err
	}
	external, err := p.endpoint(had.external, spec.External)
	if err != nil {
		return nil, err
	}
	if internal.client.access.Server() == external.client.access.Server() {
		return nil, kubeconfig.SameServer
	}
	return &settings{internal: internal, external: external, timeout: spec.Timeout, nodeLeases: spec.NodeLeases}, nil
}

func (p *Prober) endpoint(had endpoint, text []byte) (endpoint, error) {
	version := probe.VersionOf(text)
	if had.client != nil && had.version == version {
		return had, nil
	}
	access, err := p.Policy.Parse(text)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{version, newClient(access, p.Policy, p.RedialEvery)}, nil
}

// RunBy moves a target's next run to that time, if it would be later.
func (p *Prober) RunBy(key Key, by time.Time) { p.scheduler.advance(key, by) }

// Servers are those that a target's probes go to, as host:port: from inside and from outside. None when it isn't probed.
func (p *Prober) Servers(key Key) []string {
	t := p.target(key)
	if t == nil {
		return nil
	}
	wanted := t.next.Load()
	return []string{wanted.internal.client.access.Server(), wanted.external.client.access.Server()}
}

// Remove ends the probing of a target. A run in progress is finished.
func (p *Prober) Remove(key Key) { p.scheduler.remove(key) }

// target is the task that probes one target.
type target struct {
	prober *Prober
	key    Key
	// next are the settings of the next run.
	next atomic.Pointer[settings]
	// current are the settings of the last run. The field belongs to the scheduler's worker.
	current settings
	// slow: the last listing took too long. It belongs to the scheduler's worker, too.
	slow bool
	// refused is the last list's error, and refusedUntil the end of its Retry-After. Both belong to the worker.
	refused      probe.Outcome
	refusedUntil time.Time
}

// settings are immutable, but for what clients keep between runs.
type settings struct {
	internal, external endpoint
	timeout            time.Duration
	nodeLeases         *probe.LeaseSettings
}

// endpoint is one side of a target.
type endpoint struct {
	version probe.Version
	client  *client
}

// run probes from inside, and if that was a success, from outside.
func (t *target) run(ctx context.Context) time.Time {
	clock := t.prober.Clock
	run := probe.Run{Started: clock.Now(), Spread: rand.Float64()} // before applySettings: a run's start is never later than its credentials
	t.applySettings()
	run.Internal = t.ask(ctx, "internal", t.current.internal.client)
	if probe.Succeeded(run.Internal) {
		external := t.ask(ctx, "external", t.current.external.client)
		run.External = &external
		run.Witnessed = external.Result() == probe.Failure && t.prober.Witnesses.Vouch(ctx, clock.Now())
		if t.current.nodeLeases != nil && probe.Succeeded(external) {
			t.listLeases(ctx, &run)
		}
	}
	run.Ended = clock.Now()
	if ctx.Err() != nil { // the Prober stops, and a run that was canceled has no result
		return run.Ended
	}
	return t.prober.Handler.Observe(t.key, run)
}

func (t *target) ask(ctx context.Context, side string, c *client) probe.Outcome {
	clock := t.prober.Clock
	began := clock.Now()
	outcome := c.probe(ctx, t.current.timeout, clock.Now)
	observeProbe(side, outcome, clock.Since(began))
	return outcome
}

// maxListing is how long a listing may have its slot: the leases of 5,000 nodes take 100 chunks.
const maxListing = 10 * time.Second

// listLeases adds the leases to a run, or why they can't be listed.
func (t *target) listLeases(ctx context.Context, run *probe.Run) {
	ctx, cancel := context.WithTimeout(ctx, t.current.timeout)
	defer cancel()
	clock := t.prober.Clock
	began := clock.Now()
	if began.Before(t.refusedUntil) {
		run.ListError = t.refused
		return
	}
	free, ok := t.prober.listSlots.acquire(ctx, t.key.Namespace, t.slow)
	if !ok {
		run.ListError = probe.Outcome{Class: probe.NotRun, Detail: "too many other clusters' leases are being listed"}
		return
	}
	defer free()
	ctx, cancelList := context.WithTimeout(ctx, t.prober.listTimeout)
	defer cancelList()
	defer func() { t.slow = ctx.Err() != nil }()
	leases, ahead, err := t.current.external.client.nodeLeases(ctx, clock, min(t.current.timeout-clock.Since(began), t.prober.listTimeout), *t.current.nodeLeases)
	if err != nil {
		t.current.external.client.close() // it may have broken, or still receive
		run.ListError = classify(err)
		t.refused, t.refusedUntil = run.ListError, clock.Now().Add(run.ListError.RetryAfter)
		observeProbe("leases", run.ListError, clock.Since(began))
		return
	}
	now := clock.Now()
	observeProbe("leases", probe.Outcome{Class: probe.OK}, now.Sub(began))
	run.Leases, run.ServerTime = leases, now.Add(ahead)
}

// applySettings makes the next settings current, and closes connections that were made with other credentials.
func (t *target) applySettings() {
	before, now := t.current, *t.next.Load()
	t.current = now
	if before.internal.client != now.internal.client {
		before.internal.client.close()
	}
	if before.external.client != now.external.client {
		before.external.client.close()
	}
}

func (t *target) close() {
	t.current.internal.client.close()
	t.current.external.client.close()
}
