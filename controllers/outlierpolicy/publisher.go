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
	// coalesce is how far two translations are apart at least: a rollout changes endpoints many times a second.
	coalesce = 100 * time.Millisecond
	// lookAgain after what couldn't be done.
	lookAgain = time.Second
	// atLeast so often everything is translated, changed or not: how old the last one is tells whether it still is. In between only
	// the namespaces are in which something changed.
	atLeast = time.Minute
	// recordAgain after a record that couldn't be written.
	recordAgain = 5 * time.Second
	// patience is how long the first translation waits for routes, judgements, and the API server's word that policies are what was
	// judged. An Envoy that is told nothing keeps hosts that are gone by and by; after that what isn't known is left as it is recorded.
	patience = time.Minute
)

// Publisher keeps what Envoys are served up to date. It is a Runnable of every replica.
type Publisher struct {
	Options
	Clock clock.WithTicker
	// Record of the clusters that Envoys were told of; nil when nobody is served.
	Record Record

	absences *absences
	policies policy.Policies[*v1alpha1.OutlierPolicy, reading]
	watches  *kube.Watches
	// kick has something translated, unrecorded the record written, further statuses looked at, and shown Gateways patched; each has room for one.
	kick, unrecorded, further, shown chan struct{}
	// stale is what changed since it was translated last.
	stale stale
	// told is what Envoys were told last, by namespace and cluster; nil at first. Only the publishing goroutine uses it.
	told map[string]map[outlier.Key]actuate.Cluster
	// gone are clusters that Envoys were told to remove just now. Only the publishing goroutine uses it.
	gone []string
	// complete is when everything was translated last. Only the publishing goroutine uses it.
	complete time.Time
	// began is when the first translation could have been made, but for what is waited for with patience. Only the publishing goroutine uses it.
	began time.Time

	mu sync.Mutex
	// served are the clusters that Envoys may have, by namespace; needs mu, as all below. They stay until their Service is
	// gone, or their route. Recorded are those in the record.
	served   map[string]map[outlier.Key]outlier.Protocol
	recorded map[outlier.Key]outlier.Protocol
	last     *picture
	gateways *gatewaysView
	// patched is the picture by which Gateways were patched last.
	patched *picture
}

// NewPublisher makes one that has published nothing yet, and follows the rules.
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

// changed has translated anew, soon, what is stale.
func (p *Publisher) changed() {
	select {
	case p.kick <- struct{}{}:
	default: // it will be
	}
}

// Start publishes until the context ends. It fails when the API server went back to an older state.
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
			if problem != err.Error() { // which would else be told each second
				log.FromContext(ctx).Info("Envoys keep what they have, looking again", "reason", err.Error())
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

// pause until it is looked again after what was done, which is 0 for when everything is to be translated again.
func (p *Publisher) pause(again time.Duration) time.Duration {
	return min(cmp.Or(again, atLeast), p.complete.Add(atLeast).Sub(p.Clock.Now()))
}

// publish translates what may have changed and has it served. It says when to look again, if nothing changes before: 0 for never. An
// error means that nothing was changed.
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
	p.removed(p.gone) // they are among those that were told, which were only to be kept
	p.gone = nil
	p.keep(pic, told)
	p.show(pic)
	return again, nil
}

// waits: nobody was told anything yet, and it isn't long that something is missing.
func (p *Publisher) waits() bool {
	return p.told == nil && p.Clock.Since(p.began) < patience
}
