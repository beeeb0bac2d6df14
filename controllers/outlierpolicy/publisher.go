package outlierpolicy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

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
	// recordAgain after a record that couldn't be written.
	recordAgain = 5 * time.Second
	// patience is how long the first translation waits for routes and judgements. An Envoy that is told nothing keeps hosts that are
	// gone by and by; after that what isn't known is left as it is recorded.
	patience = time.Minute
)

// Publisher keeps what Envoys are served up to date. It is a Runnable of every replica.
type Publisher struct {
	Options
	Cache cache.Cache
	Clock clock.WithTicker
	// Record of the clusters that Envoys were told of; nil when nobody is served.
	Record Record

	absences *absences
	judge    *judging.Judge[*v1alpha1.OutlierPolicy, reading]
	// kick has something translated, and unrecorded the record written; both have room for one.
	kick, unrecorded chan struct{}
	// lost takes the first policy that the API server went back with.
	lost chan error
	// told is what Envoys were told last, by cluster; nil at first. Only the publishing goroutine uses it.
	told map[outlier.Key]actuate.Cluster
	// began is when the first translation could have been made, but for routes and judgements. Only the publishing goroutine uses it.
	began time.Time

	mu sync.Mutex
	// served are the clusters that Envoys may have, by Service; needs mu, as all below. They stay until their Service is gone, or
	// their route. Recorded are those in the record.
	served   map[types.NamespacedName]map[outlier.Key]bool
	recorded map[outlier.Key]bool
	last     *picture
	queue    kube.Queue
}

// NewPublisher makes one that has published nothing yet, and follows the rules.
func NewPublisher(objects cache.Cache, opts Options, live client.Reader, by clock.WithTicker) *Publisher {
	p := &Publisher{
		Options: opts, Cache: objects, Clock: by, kick: make(chan struct{}, 1), unrecorded: make(chan struct{}, 1), lost: make(chan error, 1),
		served: map[types.NamespacedName]map[outlier.Key]bool{}, recorded: map[outlier.Key]bool{},
		judge: judging.New(judging.Options[*v1alpha1.OutlierPolicy, reading]{
			Kind: kindOutlierPolicy, Guard: opts.Guard, Clock: by, Rejections: opts.Rejections, Read: read,
		}),
	}
	p.absences = newAbsences(live, by, p.changed)
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
	running.Go(func() { p.recall(ctx); p.publishAll(ctx) })
	running.Go(func() { p.absences.run(ctx) })
	running.Go(func() { p.keepRecord(ctx) })
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
		next, err := p.publish(ctx)
		if err != nil {
			log.FromContext(ctx).V(1).Info("Envoys keep what they have, looking again", "reason", err.Error())
			next = lookAgain
		}
		if next > 0 {
			again = p.Clock.After(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(coalesce):
		}
	}
}

// publish translates everything and has it served. It says when to look again, if nothing changes before: 0 for never. An error
// means that nothing was changed.
func (p *Publisher) publish(ctx context.Context) (again time.Duration, err error) {
	if !p.Routed.CoreSynced() {
		return 0, fmt.Errorf("not all Services, endpoints and policies are read yet")
	}
	if p.began.IsZero() {
		p.began = p.Clock.Now()
	}
	world, err := p.Routed.World(ctx, "")
	if err != nil {
		return 0, err
	}
	if len(world.Unread) > 0 && p.waits() {
		return 0, fmt.Errorf("not all routes are read yet")
	}
	pic, err := p.paint(world)
	if err != nil {
		return 0, err
	}
	clusters := p.translate(pic, world)
	told, again, err := p.tell(ctx, pic, clusters)
	if err != nil {
		return 0, err
	}
	p.told = told
	p.remember(slices.Collect(maps.Keys(told)))
	p.show(pic)
	return again, nil
}

// waits: nobody was told anything yet, and it isn't long that something is missing.
func (p *Publisher) waits() bool {
	return p.told == nil && p.Clock.Since(p.began) < patience
}

// tell has clusters served, and gives what was told of each. One about which there is doubt keeps what was told before.
func (p *Publisher) tell(ctx context.Context, pic *picture, clusters []actuate.Cluster) (told map[outlier.Key]actuate.Cluster, again time.Duration, err error) {
	var held map[outlier.Key]error
	if p.Clusters != nil {
		gone, missing := p.gone(pic)
		if missing {
			again = askSoon
		}
		if held, err = p.Clusters.Apply(ctx, clusters, gone); err != nil {
			return nil, 0, err
		}
	}
	told = make(map[outlier.Key]actuate.Cluster, len(clusters))
	for _, c := range clusters {
		if held[c.Key] == nil {
			told[c.Key] = c
			continue
		}
		again = lookAgain
		log.FromContext(ctx).V(1).Info("Envoys keep a cluster as it was, looking again", "cluster", c.Key.String(), "reason", held[c.Key].Error())
		if before, was := p.told[c.Key]; was {
			told[c.Key] = before
		}
	}
	pic.doubt(held)
	return told, again, nil
}

// translate is what Envoys are to be told. A process that has told nothing yet takes what it finds as told by the one before,
// whatever is paused since: else detection would end with each restart during an incident.
func (p *Publisher) translate(pic *picture, world outlier.World) (clusters []actuate.Cluster) {
	for _, svc := range world.Services {
		name := client.ObjectKeyFromObject(svc)
		for _, a := range pic.index.Assign(svc, p.servedOf(name)) {
			before, was := p.told[a.Key]
			if a.Policy != nil && a.Policy.Doubtful && p.told != nil && !was {
				continue // it comes once its policy is judged
			}
			c := p.cluster(pic, a, before)
			c.Hosts = outlier.HostsOf(svc, a.Port, world.Slices[name])
			clusters = append(clusters, c)
			pic.add(a, c.Hosts, c.Policy != a.Policy)
		}
		pic.seen[name] = true
	}
	return clusters
}

// cluster is what Envoys are to be told of one, where they were told of before.
func (p *Publisher) cluster(pic *picture, a *outlier.Assignment, before actuate.Cluster) actuate.Cluster {
	c := actuate.Cluster{Assignment: *a}
	stance := stanceOf(pic.paused)
	switch {
	case p.told == nil:
		stance = outlier.Acting
	case a.Policy != nil && a.Policy.Doubtful:
		stance = outlier.Frozen
	}
	switch c.Policy = outlier.Under(stance, a.Policy, before.Policy); c.Policy {
	case nil:
	case before.Policy:
		c.Admitted = before.Admitted
	default:
		c.Admitted = pic.policies[c.Policy.Key()].admitted
	}
	if route := a.Key.Route; before.Key == a.Key && route != (outlier.RouteKey{}) && !pic.index.HasRoute(a.Key.Service.Namespace, route) {
		c.TCP, c.HTTP2 = before.TCP, before.HTTP2 // which only the route could tell
	}
	return c
}

// gone are the served clusters whose Services or routes are gone by the API server's word, and whether any is missing at all. A freeze
// keeps them.
func (p *Publisher) gone(pic *picture) (keys []outlier.Key, missing bool) {
	if pic.paused.Frozen {
		return nil, false
	}
	all := p.missing(pic)
	objects := make(map[object]bool, len(all))
	for o := range all {
		objects[o] = true
	}
	for o := range p.absences.confirmed(objects) {
		keys = append(keys, all[o]...)
	}
	return keys, len(all) > 0
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
