package conditionset

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/judging"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Observer feeds the fleet from informers and judges every set that is stored. It runs on every replica: a webhook that
// isn't the leader previews from the same knowledge.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard
	Facts *kube.Facts

	judge *judging.Judge[*v1alpha1.ConditionSet, reading]
	// telling is held while the fleet is told of a judgement: else an older one could come after a newer.
	telling sync.Mutex
	// lost takes the first object that the API server went back with.
	lost chan error

	mu         sync.Mutex
	nodes      kube.Queue // needs mu, as all below; nil until this replica leads
	sets       kube.Queue
	leaseWatch bool
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, rules *guard.Guard, facts *kube.Facts, rejections *kube.Rejections) *Observer {
	o := &Observer{
		Cache: objects, Guard: rules, Facts: facts, lost: make(chan error, 1),
		judge: judging.New(judging.Options[*v1alpha1.ConditionSet, reading]{
			Kind: kindConditionSet, Guard: rules, Clock: facts.Clock, Rejections: rejections, Read: read,
		}),
	}
	o.followPolicy()
	rules.OnChange(o.rulesChanged)
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state: the fleet would ignore all
// news until they are newer than what it knows.
func (o *Observer) Start(ctx context.Context) error {
	o.mu.Lock()
	if o.nodes == nil && o.sets == nil {
		o.Facts.Fleet.Follow()
	}
	o.mu.Unlock()
	watches := []struct {
		object   client.Object
		handlers toolscache.ResourceEventHandlerFuncs
	}{
		{&corev1.Node{}, kube.Handlers(o.node, o.nodeGone, o.historyLost)},
		{&v1alpha1.ConditionSet{}, kube.Handlers(func(cs *v1alpha1.ConditionSet) { o.set(ctx, cs) }, o.setGone, o.historyLost)},
		{&appsv1.DaemonSet{}, kube.Handlers(func(*appsv1.DaemonSet) { o.daemonSets(ctx) }, func(*appsv1.DaemonSet) { o.daemonSets(ctx) }, o.historyLost)},
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
	o.Facts.Fleet.MarkSynced(o.Facts.Moment())
	o.enqueueAll()
	go o.judge.Run(ctx, o.judgeNow)
	select {
	case <-ctx.Done():
		return nil
	case err := <-o.lost:
		return fmt.Errorf("observe nodes and ConditionSets: %w", err)
	}
}

func (o *Observer) historyLost(err error) {
	select {
	case o.lost <- err:
	default: // the first says enough
	}
}

// attach takes the queues of a replica that became the leader.
func (o *Observer) attach(nodes, sets kube.Queue) {
	o.mu.Lock()
	if nodes != nil {
		o.nodes = nodes
	}
	if sets != nil {
		o.sets = sets
	}
	o.mu.Unlock()
	o.Facts.Fleet.Lead(o.Facts.Moment())
	o.enqueueAll()
}

func (o *Observer) enqueueAll() {
	if !o.Facts.Fleet.Synced() {
		return
	}
	o.enqueueNodes(o.Facts.Fleet.Nodes())
	for _, key := range o.judge.Keys() {
		o.enqueueSet(key.Name)
	}
}

func (o *Observer) enqueueNodes(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		enqueue(o.nodes, name, 0)
	}
}

func (o *Observer) enqueueSet(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	enqueue(o.sets, name, 0)
}

// enqueueDirty asks for the status of the sets that changed, and for the nodes that another's leaving the queue lets go on.
func (o *Observer) enqueueDirty() {
	o.enqueueNodes(o.Facts.Fleet.TakeWoken())
	dirty := o.Facts.Fleet.TakeDirty()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range dirty {
		enqueue(o.sets, name, status.Delay)
	}
}

func enqueue(q kube.Queue, name string, after time.Duration) {
	kube.Enqueue(q, types.NamespacedName{Name: name}, after)
}
