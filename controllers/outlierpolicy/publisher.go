package outlierpolicy

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/judging"
)

const (
	// coalesce is how far two translations are apart at least: a rollout changes endpoints many times a second.
	coalesce = 100 * time.Millisecond
	// lookAgain after what couldn't be done.
	lookAgain = time.Second
	// stillGone is how long an answer that a Service is gone is believed: removals of many wait, and are asked about all the while.
	stillGone = 30 * time.Second
)

// Publisher keeps what Envoys are served up to date. It is a Runnable of every replica.
type Publisher struct {
	Options
	Cache cache.Cache
	// Live asks the API server whether a Service is really gone.
	Live  client.Reader
	Clock clock.WithTicker

	judge *judging.Judge[*v1alpha1.OutlierPolicy, reading]
	kick  chan struct{} // has room for one
	// lost takes the first policy that the API server went back with.
	lost chan error
	// told is what Envoys were told last, by cluster; nil at first. Only the publishing goroutine uses it.
	told map[outlier.Key]actuate.Cluster
	// asked is when the API server said of a Service that it is gone. Only the publishing goroutine uses it.
	asked map[types.NamespacedName]time.Time

	mu sync.Mutex
	// served are the clusters that Envoys may have, by Service; needs mu, as all below. They stay until their Service is gone.
	served map[types.NamespacedName]map[outlier.Key]bool
	last   *picture
	queue  kube.Queue
}

// NewPublisher makes one that has published nothing yet, and follows the rules.
func NewPublisher(objects cache.Cache, opts Options, live client.Reader, by clock.WithTicker) *Publisher {
	p := &Publisher{
		Options: opts, Cache: objects, Live: live, Clock: by, kick: make(chan struct{}, 1), lost: make(chan error, 1),
		served: map[types.NamespacedName]map[outlier.Key]bool{},
		judge: judging.New(judging.Options[*v1alpha1.OutlierPolicy, reading]{
			Kind: kindOutlierPolicy, Guard: opts.Guard, Clock: by, Rejections: opts.Rejections, Read: read,
		}),
	}
	p.judge.FollowPolicy(opts.Guard.Policy())
	opts.Guard.OnChange(p.rulesChanged)
	return p
}

// NeedLeaderElection is false: every replica serves.
func (*Publisher) NeedLeaderElection() bool { return false }

// changed has everything translated anew, soon.
func (p *Publisher) changed() {
	select {
	case p.kick <- struct{}{}:
	default: // it will be
	}
}

// Start publishes until the context ends. It fails when the API server went back to an older state.
func (p *Publisher) Start(ctx context.Context) error {
	informer, err := p.Cache.GetInformer(ctx, &v1alpha1.OutlierPolicy{})
	if err != nil {
		return fmt.Errorf("watch OutlierPolicies: %w", err)
	}
	registration, err := informer.AddEventHandler(kube.Handlers(p.policy, p.policyGone, p.historyLost))
	if err != nil {
		return fmt.Errorf("watch OutlierPolicies: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil // stopped before it began
	}
	var running sync.WaitGroup
	defer running.Wait()
	for range judges {
		running.Go(func() { p.judge.Run(ctx, p.judgeNow) })
	}
	running.Go(func() { p.publishAll(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.lost:
		return fmt.Errorf("observe OutlierPolicies: %w", err)
	}
}

func (p *Publisher) historyLost(err error) {
	select {
	case p.lost <- err:
	default: // the first says enough
	}
}

func (p *Publisher) publishAll(ctx context.Context) {
	p.changed()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
		case <-again:
		}
		again = nil
		if err := p.publish(ctx); err != nil {
			log.FromContext(ctx).V(1).Info("Envoys keep what they have, looking again", "reason", err.Error())
			again = p.Clock.After(lookAgain)
		} else if len(p.asked) > 0 {
			again = p.Clock.After(stillGone)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(coalesce):
		}
	}
}

// publish translates everything and has it served. An error means that something isn't known, and nothing was changed.
func (p *Publisher) publish(ctx context.Context) error {
	if !p.Routed.Synced() {
		return fmt.Errorf("not all Services, routes and policies are read yet")
	}
	world, err := p.Routed.World(ctx, "")
	if err != nil {
		return err
	}
	pic, err := p.paint(world)
	if err != nil {
		return err
	}
	clusters := p.translate(pic, world)
	if p.Clusters != nil {
		gone, err := p.gone(ctx, pic)
		if err != nil {
			return err
		}
		if err := p.Clusters.Apply(ctx, clusters, gone); err != nil {
			return err
		}
	}
	p.told = make(map[outlier.Key]actuate.Cluster, len(clusters))
	for _, c := range clusters {
		p.told[c.Key] = c
	}
	p.show(pic)
	return nil
}

// translate is what Envoys are to be told. A process that has told nothing yet takes what it finds as told by the one before,
// whatever is paused since: else detection would end with each restart during an incident.
func (p *Publisher) translate(pic *picture, world outlier.World) (clusters []actuate.Cluster) {
	stance := stanceOf(pic.paused)
	if p.told == nil {
		stance = outlier.Acting
	}
	for _, svc := range world.Services {
		name := client.ObjectKeyFromObject(svc)
		for _, a := range pic.index.Assign(svc, p.servedOf(name)) {
			c := actuate.Cluster{Assignment: *a, Hosts: outlier.HostsOf(svc, a.Port, world.Slices[name])}
			before := p.told[a.Key]
			switch c.Policy = outlier.Under(stance, a.Policy, before.Policy); c.Policy {
			case nil:
			case before.Policy:
				c.Admitted = before.Admitted
			default:
				c.Admitted = pic.policies[c.Policy.Key()].admitted
			}
			clusters = append(clusters, c)
			p.remember(a.Key)
			pic.add(a, c.Hosts, c.Policy != a.Policy)
		}
		pic.seen[name] = true
	}
	return clusters
}

// gone are the clusters of those served Services that are gone, by asking the API server: an informer may be behind. A freeze
// keeps them.
func (p *Publisher) gone(ctx context.Context, pic *picture) (keys []outlier.Key, err error) {
	asked := map[types.NamespacedName]time.Time{}
	defer func() { p.asked = asked }()
	if pic.paused.Frozen {
		return nil, nil
	}
	for _, name := range p.missing(pic.seen) {
		at, before := p.asked[name]
		if now := p.Clock.Now(); !before || now.Sub(at) >= stillGone {
			err := p.Live.Get(ctx, name, &corev1.Service{})
			if err == nil {
				continue // the news are on their way
			}
			if !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("ask whether Service %s is gone: %w", name, err)
			}
			at = now
		}
		asked[name] = at
		keys = append(keys, p.servedOf(name)...)
	}
	return keys, nil
}

// show gives a picture to who writes statuses.
func (p *Publisher) show(pic *picture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = pic
	p.enqueueAll()
}

// progressed: some Envoys are further with some clusters.
func (p *Publisher) progressed([]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueueAll()
}

// enqueueAll needs mu.
func (p *Publisher) enqueueAll() {
	if p.last == nil {
		return
	}
	for key := range p.last.policies {
		p.enqueue(key)
	}
}

// enqueue needs mu.
func (p *Publisher) enqueue(key types.NamespacedName) { kube.Enqueue(p.queue, key, 0) }

// attach takes the queue of the replica that leads.
func (p *Publisher) attach(q kube.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = q
	p.enqueueAll()
}

// picture is the latest.
func (p *Publisher) picture() *picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
