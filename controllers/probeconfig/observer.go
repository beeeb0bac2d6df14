package probeconfig

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/judging"
	"github.com/resourcestack/autohealer/internal/probing"
)

// Observer knows every stored config, what the rules say of it, and its targets. It runs on every replica, so that one that
// takes over knows them already.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is Autohealer's; "" when unknown.
	OwnNamespace string

	judge   *judging.Judge[*v1alpha1.ProbeConfig, reading]
	targets targets
	synced  atomic.Bool
	// lost takes the first object that the API server went back with.
	lost chan error
	// telling is held while targets are told of a config, or dropped: else an older one could come after a newer, or to one that
	// is dropped.
	telling sync.Mutex

	mu         sync.Mutex
	namespaces map[string]namespace // needs mu, as all below
	// told are the configs that all their targets know.
	told        map[types.NamespacedName]*probe.Config
	targetQueue kube.Queue // nil until this replica leads
	configQueue kube.Queue
	orphanQueue kube.Queue
	// goneKinds are the kinds that configs scaled which are gone.
	goneKinds sets.Set[v1alpha1.DependentKind]
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, opts Options) *Observer {
	o := &Observer{
		Cache: objects, Guard: opts.Guard, Facts: opts.Facts, OwnNamespace: opts.OwnNamespace,
		lost: make(chan error, 1), namespaces: map[string]namespace{}, told: map[types.NamespacedName]*probe.Config{},
		goneKinds: sets.New[v1alpha1.DependentKind](),
	}
	o.judge = judging.New(judging.Options[*v1alpha1.ProbeConfig, reading]{
		Kind: kindProbeConfig, Guard: opts.Guard, Clock: opts.Facts.Clock, Rejections: opts.Rejections, Read: o.read,
	})
	o.followPolicy()
	opts.Guard.OnChange(o.rulesChanged)
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state.
func (o *Observer) Start(ctx context.Context) error {
	watches := []struct {
		object   client.Object
		handlers toolscache.ResourceEventHandlerFuncs
	}{
		{&corev1.Namespace{}, kube.Handlers(o.namespace, o.namespaceGone, o.historyLost)},
		{&v1alpha1.ProbeConfig{}, kube.Handlers(o.config, o.configGone, o.historyLost)},
	}
	var synced []toolscache.InformerSynced
	for _, w := range watches {
		informer, err := o.Cache.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(w.handlers)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // stopped before it began
	}
	o.markSynced()
	var running sync.WaitGroup
	defer running.Wait()
	for range judges {
		running.Go(func() { o.judge.Run(ctx, o.judgeNow) })
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-o.lost:
		return fmt.Errorf("observe ProbeConfigs: %w", err)
	}
}

// markSynced takes in that all namespaces are known. What configs were told before may lack targets, and a deleted one that
// seems to have none would be let go.
func (o *Observer) markSynced() {
	o.telling.Lock()
	o.mu.Lock()
	clear(o.told)
	o.mu.Unlock()
	o.synced.Store(true)
	o.telling.Unlock()
	for _, key := range o.judge.Keys() {
		o.retarget(key)
	}
	o.enqueueAll()
}

func (o *Observer) fleet() *probe.Fleet { return o.Facts.Targets }

func (o *Observer) historyLost(err error) {
	select {
	case o.lost <- err:
	default: // the first says enough
	}
}

// attach takes the queues of a replica that became the leader.
func (o *Observer) attach(targets, configs kube.Queue) {
	o.mu.Lock()
	if targets != nil {
		o.targetQueue = targets
	}
	if configs != nil {
		o.configQueue = configs
	}
	o.mu.Unlock()
	o.enqueueAll()
}

// attachOrphans takes the queue of who looks for what configs left that are gone.
func (o *Observer) attachOrphans(q kube.Queue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.orphanQueue = q
	kube.Enqueue(q, orphansName, 0)
}

func (o *Observer) enqueueAll() {
	if !o.synced.Load() {
		return
	}
	o.enqueueConfigs()
	for _, key := range o.targets.keys() {
		o.enqueueTarget(key)
	}
}

func (o *Observer) enqueueConfigs() {
	for _, key := range o.judge.Keys() {
		o.enqueueConfig(key)
	}
}

func (o *Observer) enqueueTarget(key probing.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kube.Enqueue(o.targetQueue, nameOf(key), 0)
}

func (o *Observer) enqueueConfig(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kube.Enqueue(o.configQueue, key, 0)
}
