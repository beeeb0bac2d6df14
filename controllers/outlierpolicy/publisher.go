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
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// minInterval is the least time between two translations: a rollout changes endpoints many times a second.
	coalesce = 100 * time.Millisecond
	// retryAfter an error.
	lookAgain = time.Second
	// fullInterval is how often everything is translated, changed or not, so that the metric of the last publication shows that the
	// publisher works. In between only namespaces in which something changed are.
	atLeast = time.Minute
	// recordRetryAfter an error of writing the record.
	recordAgain = 5 * time.Second
	// startupTimeout is how long the first translation waits for routes, for verdicts, and for the API server to confirm that policies are
	// those that were judged. An Envoy without updates has more and more stale hosts, so after that what isn't known is served as recorded.
	patience = time.Minute
)

// Publisher translates policies and has the result served. It is a Runnable of every replica.
type Publisher struct {
	Options
	Clock clock.WithTicker
	// Record of the clusters that Envoys were sent; nil when no xDS is served.
	Record Record

	absences *absences
	policies policy.Policies[*v1alpha1.OutlierPolicy, reading]
	watches  *kube.Watches
	// Each has capacity for one signal: to translate, to write the record, to update statuses, to patch Gateways.
	kick, unrecorded, further, shown chan struct{}
	// stale is what changed since it was translated last.
	stale stale
	// sent is what Envoys were sent last, by namespace and cluster; nil at first. Only the publishing goroutine uses it.
	told map[string]map[outlier.Key]actuate.Cluster
	// justRemoved are clusters that Server.Set has just removed. Only the publishing goroutine uses it.
	gone []string
	// lastFull is when everything was translated last. Only the publishing goroutine uses it.
	complete time.Time
	// startedAt is when the core informers were synced; startupTimeout counts from it. Only the publishing goroutine uses it.
	began time.Time

	mu sync.Mutex
	// served are the clusters that Envoys may have, by namespace; needs mu, as all below. They stay until their Service or their route is
	// gone. Recorded are those in the record.
	served   map[string]map[outlier.Key]outlier.Protocol
	recorded map[outlier.Key]outlier.Protocol
	last     *picture
	gateways *gatewaysView
	// patchedSnapshot is the one that Gateways were patched from last.
	patched *picture
}

// NewPublisher makes one that has published nothing yet, and subscribes it to changes of Guardrails.
func NewPublisher(objects cache.Cache, opts Options, live client.Reader, by clock.WithTicker) *Publisher {
	p := &Publisher{
		Options: opts, Clock: by, kick: make(chan struct{}, 1), unrecorded: make(chan struct{}, 1), further: make(chan struct{}, 1), shown: make(chan struct{}, 1),
		watches: kube.NewWatches(objects),
		served:  map[string]map[outlier.Key]outlier.Protocol{}, recorded: map[outlier.Key]outlier.Protocol{},
	}
	if opts.Clusters != nil {
		opts.Clusters.Waits = p.waits
		opts.Clusters.Server.Progressed, opts.Clusters.Server.Removed = p.progressed, func(names []string) { p.gone = names }
	}
	p.absences = newAbsences(live, by, p.changed)
	p.policies.Init(policy.Hooks[*v1alpha1.OutlierPolicy, reading]{
		Kind: kindOutlierPolicy, Guard: opts.Guard, Clock: by, Rejections: opts.Rejections, Read: read, Changed: p.update, Forget: p.forget,
	})
	opts.Guard.OnChange(p.guardrailsChanged)
	return p
}

// NeedLeaderElection is false: every replica serves.
func (*Publisher) NeedLeaderElection() bool { return false }

// requestTranslation has stale namespaces translated soon.
func (p *Publisher) changed() {
	select {
	case p.kick <- struct{}{}:
	default: // it is requested already
	}
}

// Start publishes until the context ends. It fails when the API server was restored to an older state.
func (p *Publisher) Start(ctx context.Context) error {
	return p.watches.Run(ctx, p.run, kube.On(&v1alpha1.OutlierPolicy{}, func(op *v1alpha1.OutlierPolicy) { p.policy(ctx, op) }, p.policies.Gone))
}

func (p *Publisher) run(ctx context.Context) error {
	var running sync.WaitGroup
	for range judges {
		running.Go(func() { p.policies.Run(ctx) })
	}
	running.Go(func() { p.recall(ctx); p.publishAll(ctx) })
	running.Go(func() { p.absences.run(ctx) })
	running.Go(func() { p.keepRecord(ctx) })
	running.Go(func() { p.followProgress(ctx) })
	running.Wait()
	return nil
}

func (p *Publisher) publishAll(ctx context.Context) {
	p.changed()
	var again <-chan time.Time
	problem := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		case <-again:
		}
		next, err := p.publish(ctx)
		if err != nil {
			if problem != err.Error() { // log it once
				log.FromContext(ctx).Info("Can't publish clusters; Envoys keep what they have; retrying", "reason", err.Error())
			}
			problem, next = err.Error(), lookAgain
		} else {
			problem = ""
			next = p.pause(next)
		}
		again = p.Clock.After(next)
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(coalesce):
		}
	}
}

// nextDelay is the time until the next translation: after the given time, 0 for none, and when everything is due at the latest.
func (p *Publisher) pause(again time.Duration) time.Duration {
	return min(cmp.Or(again, atLeast), p.complete.Add(atLeast).Sub(p.Clock.Now()))
}

// publish translates what may have changed and has it served. It returns when to translate again even if nothing changes: 0 for never.
// After an error nothing was changed.
func (p *Publisher) publish(ctx context.Context) (again time.Duration, err error) {
	if !p.Routed.CoreSynced() {
		return 0, fmt.Errorf("not all Services, endpoints and policies are read yet")
	}
	if p.began.IsZero() {
		p.began = p.Clock.Now()
	}
	changed := p.stale.take()
	if again, err = p.publishOnly(ctx, changed); err != nil {
		p.stale.add(changed.UnsortedList()...)
	}
	return again, err
}

func (p *Publisher) publishOnly(ctx context.Context, changed sets.Set[string]) (again time.Duration, err error) {
	blank, err := p.blank(changed)
	if err != nil {
		return 0, err
	}
	world, err := p.look(ctx, blank)
	if err != nil {
		return 0, err
	}
	pic, err := p.paint(blank, world)
	if err != nil {
		return 0, err
	}
	clusters := translate(pic, world, p.before(pic))
	told, again, err := p.tell(ctx, pic, clusters)
	if err != nil {
		return 0, err
	}
	p.remember(protocols(told))
	p.removed(p.gone) // after remember: a removed cluster may be among those that were sent
	p.gone = nil
	p.keep(pic, told)
	p.show(pic)
	return again, nil
}

// isStarting: nothing was sent yet, and startupTimeout isn't over.
func (p *Publisher) waits() bool {
	return p.told == nil && p.Clock.Since(p.began) < patience
}
