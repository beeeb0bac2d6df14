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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Observer feeds the fleet from informers and judges every set that is stored. It runs on every replica: a webhook that
// isn't the leader previews from the same knowledge.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard
	Facts *kube.Facts
	// Rejections learns which rules refuse which sets.
	Rejections *kube.Rejections

	// again are sets to judge again though they didn't change, now or at a time.
	again workqueue.TypedDelayingInterface[string]
	// judging is held while a set is read and judged.
	judging sync.Mutex
	// lost takes the first object that the API server went back with.
	lost chan error

	mu         sync.Mutex
	nodes      kube.Queue // needs mu, as all below; nil until this replica leads
	sets       kube.Queue
	judged     map[string]judgement // by name
	leaseWatch bool
	paused     string // by which Guardrails; "" when by none
	unread     bool   // no Guardrail is read yet
	changes    int    // of the rules, since the start
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, rules *guard.Guard, facts *kube.Facts, rejections *kube.Rejections) *Observer {
	o := &Observer{
		Cache: objects, Guard: rules, Facts: facts, Rejections: rejections,
		again: workqueue.NewTypedDelayingQueue[string](),
		lost:  make(chan error, 1), judged: map[string]judgement{},
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
	go o.judgeAgain(ctx)
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
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.judged {
		enqueue(o.sets, name, 0)
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
