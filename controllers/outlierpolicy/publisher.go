package outlierpolicy

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// minInterval is the least time between two translations, two updates of all statuses and so on.
	minInterval = 100 * time.Millisecond
	// retryAfter an error.
	retryAfter = time.Second
	// fullInterval is how often everything is translated, changed or not, so that the metric of the last publication shows that the
	// publisher works. In between only namespaces in which something changed are.
	fullInterval = time.Minute
	// recordRetryAfter an error of writing the record.
	recordRetryAfter = 5 * time.Second
	// startupTimeout is how long the first translation waits for routes, for verdicts, and for the API server to confirm that policies are
	// those that were judged. An Envoy without updates has more and more stale hosts, so after that what isn't known is served as recorded.
	startupTimeout = time.Minute
)

// Publisher translates policies and has the result served. It is a Runnable of every replica.
type Publisher struct {
	Options
	Clock clock.WithTicker
	// Record of the clusters that Envoys were sent; nil when no xDS is served.
	Record Record

	confirmer *deletionConfirmer
	policies  policy.Policies[*v1alpha1.OutlierPolicy, parsedPolicy]
	watches   *kube.Watches
	// The work of the loops: translation of stale namespaces, recording of served clusters, reporting of all statuses, patching of Gateways.
	translation, recording, reporting, patching trigger
	// stale is what changed since it was translated last.
	stale staleNamespaces
	// lastFull is when everything was translated last. Only the publishing goroutine uses it.
	lastFull time.Time
	// startedAt is when the core informers were synced; startupTimeout counts from it. Only the publishing goroutine uses it.
	startedAt time.Time

	mu sync.Mutex
	// served are the clusters that Envoys may have, by namespace; needs mu, as all below. They stay until their Service or their route is
	// gone. Recorded are those in the record; the map is never changed.
	served   map[string]map[outlier.Key]outlier.Protocol
	recorded map[outlier.Key]outlier.Protocol
	latest   *policySnapshot
	gateways *gatewayStatuses
	// patchedSnapshot is the one that Gateways were patched from last.
	patchedSnapshot *policySnapshot
}

// NewPublisher makes one that has published nothing yet, and subscribes it to changes of Guardrails.
func NewPublisher(objects cache.Cache, opts Options, live client.Reader, clk clock.WithTicker) *Publisher {
	p := &Publisher{
		Options: opts, Clock: clk, translation: newTrigger(), recording: newTrigger(), reporting: newTrigger(), patching: newTrigger(),
		watches: kube.NewWatches(objects),
		served:  map[string]map[outlier.Key]outlier.Protocol{},
	}
	if opts.Clusters != nil {
		opts.Clusters.Waits = p.isStarting
		opts.Clusters.Server.OnProgress = func([]string) { p.reporting.fire() }
	}
	p.confirmer = newDeletionConfirmer(live, clk, p.translation.fire)
	p.policies.Init(policy.Hooks[*v1alpha1.OutlierPolicy, parsedPolicy]{
		Kind: kindOutlierPolicy, Guard: opts.Guard, Clock: clk, Rejections: opts.Rejections, Read: parse, Changed: p.onVerdict, Forget: p.onDeleted,
	})
	opts.Guard.OnChange(p.onGuardrailChange)
	return p
}

// NeedLeaderElection is false: every replica serves.
func (*Publisher) NeedLeaderElection() bool { return false }

// Start publishes until the context ends. It fails when the API server was restored to an older state.
func (p *Publisher) Start(ctx context.Context) error {
	return p.watches.Run(ctx, p.run, kube.On(&v1alpha1.OutlierPolicy{}, func(op *v1alpha1.OutlierPolicy) { p.onPolicy(ctx, op) }, p.policies.Gone))
}

func (p *Publisher) run(ctx context.Context) error {
	var running sync.WaitGroup
	for range admissionWorkers {
		running.Go(func() { p.policies.Run(ctx) })
	}
	running.Go(func() { p.readRecord(ctx); p.publishLoop(ctx) })
	running.Go(func() { p.confirmer.run(ctx) })
	running.Go(func() { p.loop(ctx, p.recording, p.record) })
	running.Go(func() { p.loop(ctx, p.reporting, p.reportAll) })
	running.Wait()
	return nil
}

// trigger has a loop work. Fired several times before that, it has it work once.
type trigger chan struct{}

func newTrigger() trigger { return make(trigger, 1) }

func (t trigger) fire() {
	select {
	case t <- struct{}{}:
	default: // it is fired already
	}
}

// loop works when the trigger is fired, and again after the time that the work returns (0: when it is fired), until the context ends. A
// rollout changes endpoints many times a second, and Envoys answer as often, so there is minInterval between two rounds.
func (p *Publisher) loop(ctx context.Context, fired trigger, work func(context.Context) (again time.Duration)) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-fired:
		case <-again:
		}
		again = nil
		if next := work(ctx); next > 0 {
			again = p.Clock.After(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(minInterval):
		}
	}
}

func (p *Publisher) publishLoop(ctx context.Context) {
	p.translation.fire()
	problem := ""
	p.loop(ctx, p.translation, func(ctx context.Context) time.Duration {
		again, err := p.publish(ctx)
		if err == nil {
			problem = ""
			return p.nextDelay(again)
		}
		if problem != err.Error() { // log it once
			log.FromContext(ctx).Info("Can't publish clusters; Envoys keep what they have; retrying", "reason", err.Error())
		}
		problem = err.Error()
		return retryAfter
	})
}

// nextDelay is the time until the next translation: after the given time, 0 for none, and when everything is due at the latest.
func (p *Publisher) nextDelay(again time.Duration) time.Duration {
	return max(minInterval, min(cmp.Or(again, fullInterval), p.lastFull.Add(fullInterval).Sub(p.Clock.Now())))
}

// publish translates what may have changed and has it served. It returns when to translate again even if nothing changes: 0 for never.
// After an error nothing was changed.
func (p *Publisher) publish(ctx context.Context) (again time.Duration, err error) {
	if !p.Informers.CoreSynced() {
		return 0, fmt.Errorf("not all Services, endpoints and policies are read yet")
	}
	if p.startedAt.IsZero() {
		p.startedAt = p.Clock.Now()
	}
	changed := p.stale.take()
	if again, err = p.publishNamespaces(ctx, changed); err != nil {
		p.stale.add(changed.UnsortedList()...)
	}
	return again, err
}

func (p *Publisher) publishNamespaces(ctx context.Context, changed sets.Set[string]) (again time.Duration, err error) {
	blank, err := p.newSnapshot(changed)
	if err != nil {
		return 0, err
	}
	objects, err := p.listObjects(ctx, blank)
	if err != nil {
		return 0, err
	}
	snap, err := p.build(blank, objects)
	if err != nil {
		return 0, err
	}
	clusters := translate(snap, objects, p.previous(snap))
	if p.Clusters != nil {
		if again, err = p.apply(ctx, snap, clusters); err != nil {
			return 0, err
		}
	}
	if snap.onlyNamespaces == nil {
		p.lastFull = p.Clock.Now()
	}
	p.setSnapshot(snap)
	return again, nil
}

// isStarting: nothing was published yet, and startupTimeout isn't over.
func (p *Publisher) isStarting() bool {
	return p.snapshot() == nil && p.Clock.Since(p.startedAt) < startupTimeout
}
