package conditionset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Observer feeds the fleet from informers and judges every set that is stored. It runs on every replica: a webhook that
// isn't the leader previews from the same knowledge.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard
	Facts *kube.Facts

	mu         sync.Mutex
	nodes      queue // nil until this replica leads
	sets       queue
	judged     map[string]judgement // by name
	leaseWatch bool
}

// judgement is what the rules said of a stored set.
type judgement struct {
	uid        types.UID
	generation int64
	set        *condition.Set
	verdict    guard.Verdict
	admitted   actuate.Admitted
	// unreadable says why the spec can't be read.
	unreadable error
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends.
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
		{&corev1.Node{}, handlers(o.node, o.nodeGone)},
		{&v1alpha1.ConditionSet{}, handlers(func(cs *v1alpha1.ConditionSet) { o.set(ctx, cs) }, o.setGone)},
		{&appsv1.DaemonSet{}, handlers(func(*appsv1.DaemonSet) { o.daemonSets(ctx) }, func(*appsv1.DaemonSet) { o.daemonSets(ctx) })},
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
	<-ctx.Done()
	return nil
}

func handlers[T client.Object](seen, gone func(T)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen(object.(T)) },
		UpdateFunc: func(before, object any) {
			if old := before.(T); old.GetUID() != object.(T).GetUID() { // deleted and made anew while the watch was away
				gone(old)
			}
			seen(object.(T))
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if o, ok := object.(T); ok {
				gone(o)
			}
		},
	}
}

// attach takes the queues of a replica that became the leader.
func (o *Observer) attach(nodes, sets queue) {
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
	if !o.Facts.Synced() {
		return
	}
	o.enqueueNodes(o.Facts.Fleet.Nodes())
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.judged {
		add(o.sets, name, 0)
	}
}

func (o *Observer) enqueueNodes(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		add(o.nodes, name, 0)
	}
}

// enqueueDirty asks for the status of the sets that changed.
func (o *Observer) enqueueDirty() {
	dirty := o.Facts.Fleet.TakeDirty()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range dirty {
		add(o.sets, name, statusDelay)
	}
}

func add(q queue, name string, after time.Duration) {
	if q != nil {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, after)
	}
}

func (o *Observer) node(node *corev1.Node) {
	o.Facts.Heard()
	changed, wake := o.Facts.Fleet.ObserveNode(node, o.Facts.Moment())
	if changed {
		wake = append(wake, node.Name)
	}
	o.enqueueNodes(wake)
	o.enqueueDirty()
}

func (o *Observer) nodeGone(node *corev1.Node) {
	o.Facts.Heard()
	o.enqueueNodes(o.Facts.Fleet.ForgetNode(node.Name, o.Facts.Moment()))
	o.enqueueDirty()
}

func (o *Observer) set(ctx context.Context, cs *v1alpha1.ConditionSet) {
	j := o.judge(ctx, cs)
	affected := o.Facts.Fleet.ObserveSet(j.set, j.standing(cs), openBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], o.Facts.Moment())
	o.enqueueNodes(affected)
	o.mu.Lock()
	add(o.sets, cs.Name, 0)
	o.mu.Unlock()
	o.enqueueDirty()
	if o.Facts.Fleet.UsesLease() {
		o.watchLeases(ctx)
	}
}

func (o *Observer) setGone(cs *v1alpha1.ConditionSet) {
	o.mu.Lock()
	if o.judged[cs.Name].uid == cs.UID {
		delete(o.judged, cs.Name)
	}
	o.mu.Unlock()
	o.enqueueNodes(o.Facts.Fleet.ForgetSet(cs.UID))
}

// judge asks the rules once for each generation.
func (o *Observer) judge(ctx context.Context, cs *v1alpha1.ConditionSet) judgement {
	j, ok := o.judgementOf(cs.Name)
	if !ok || j.uid != cs.UID || j.generation != cs.Generation || j.verdict.RuleSetHash != o.Guard.RuleSetHash() {
		j = judgement{uid: cs.UID, generation: cs.Generation}
		j.admitted, j.verdict = guard.Admit(ctx, o.Guard, cs)
	}
	if j.set, j.unreadable = condition.NewSet(cs); j.unreadable != nil {
		j.set = condition.Unreadable(cs)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.judged == nil {
		o.judged = map[string]judgement{}
	}
	o.judged[cs.Name] = j
	return j
}

// standing is what the stored object allows. Acting waits for the finalizer and the recorded key: without them what is
// done could not be undone.
func (j judgement) standing(cs *v1alpha1.ConditionSet) condition.Standing {
	switch {
	case cs.DeletionTimestamp != nil:
		return condition.Withdrawn
	case j.unreadable != nil:
		return condition.Frozen // whether its nodes still match can't be told
	case j.set.Observe:
		return condition.Withdrawn
	case !j.admitted.Valid():
		return condition.Held
	case !slices.Contains(cs.Finalizers, v1alpha1.FinalizerUndo), !slices.Contains(cs.Status.TaintKeys, cs.Spec.TaintKey):
		return condition.Frozen
	}
	return condition.Active
}

func openBreaker(cs *v1alpha1.ConditionSet) *condition.OpenBreaker {
	b := cs.Status.Breaker
	if b == nil {
		return nil
	}
	return &condition.OpenBreaker{ID: b.ID, OpenedAt: b.OpenedAt.Time, Reset: b.Reset}
}

// judgementOf gives what the rules said of the set with this name.
func (o *Observer) judgementOf(name string) (judgement, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	j, ok := o.judged[name]
	return j, ok
}

// admittedFor are the admissions that cover a plan's steps.
func (o *Observer) admittedFor(plan condition.Plan) []actuate.Admitted {
	o.mu.Lock()
	defer o.mu.Unlock()
	var admitted []actuate.Admitted
	for _, step := range plan.Steps {
		if j := o.judged[step.SetName]; step.Harmful() && j.admitted.Valid() {
			admitted = append(admitted, j.admitted)
		}
	}
	return admitted
}

// daemonSets tells the fleet which DaemonSets nodes can't do without.
func (o *Observer) daemonSets(ctx context.Context) {
	var list appsv1.DaemonSetList
	if err := o.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		var notStarted *cache.ErrCacheNotStarted
		if !errors.As(err, &notStarted) {
			log.FromContext(ctx).Error(err, "Can't list DaemonSets from the cache")
		}
		return
	}
	var pods []condition.SystemPod
	for i := range list.Items {
		ds := &list.Items[i]
		meta := metav1.ObjectMeta{Name: ds.Name, Namespace: ds.Namespace, Labels: ds.Spec.Template.Labels}
		if role := condition.SystemRole(&meta, &ds.Spec.Template.Spec); role != "" {
			pods = append(pods, condition.SystemPod{Namespace: ds.Namespace, Name: ds.Name, Role: role, Tolerations: ds.Spec.Template.Spec.Tolerations})
		}
	}
	o.Facts.Fleet.ObserveSystemPods(pods)
}

// watchLeases begins to watch the nodes' Leases when the first set needs them: 5,000 nodes renew 500 times a second.
func (o *Observer) watchLeases(ctx context.Context) {
	o.mu.Lock()
	started := o.leaseWatch
	o.leaseWatch = true
	o.mu.Unlock()
	if started {
		return
	}
	go func() { // GetInformer waits for the first list, and this is an informer's own handler
		informer, err := o.Cache.GetInformer(ctx, &coordinationv1.Lease{})
		if err == nil {
			_, err = informer.AddEventHandler(handlers(o.lease, func(*coordinationv1.Lease) {}))
		}
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Can't watch node Leases; conditions without a heartbeat stay unproven")
			o.mu.Lock()
			o.leaseWatch = false // the next event of a set tries again
			o.mu.Unlock()
		}
	}()
}

func (o *Observer) lease(lease *coordinationv1.Lease) {
	if lease.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil {
		return
	}
	if o.Facts.Fleet.ObserveLease(lease.Name, lease.Spec.RenewTime.Time, o.Facts.Moment()) {
		o.enqueueNodes([]string{lease.Name})
	}
}

func (o *Observer) enqueueSet(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(o.sets, name, 0)
}
