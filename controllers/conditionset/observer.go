package conditionset

import (
	"context"
	"errors"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// Observer feeds the fleet from informers. It runs on every replica: a standby's webhook forecasts from the same state.
type Observer struct {
	Cache cache.Cache
	Facts *kube.Facts

	policies policy.Policies[*v1alpha1.ConditionSet, parsedSet]
	nodes    kube.Requests
	watches  *kube.Watches

	mu         sync.Mutex
	leads      bool // needs mu, as all below
	leaseWatch bool
}

// NewObserver gives an observer that follows the rules, and does nothing else before Start.
func NewObserver(objects cache.Cache, rules *guard.Guard, facts *kube.Facts, rejections *kube.Rejections) *Observer {
	o := &Observer{Cache: objects, Facts: facts, watches: kube.NewWatches(objects)}
	o.policies.Init(policy.Hooks[*v1alpha1.ConditionSet, parsedSet]{
		Kind: kindConditionSet, Guard: rules, Clock: facts.Clock, Rejections: rejections,
		Read: read, Guardrails: o.guardrails, Changed: o.update, Forget: o.forget,
		AtOnce: true, // the taints of a set that isn't known yet would be taken for those of one that is gone
	})
	return o
}

// NeedLeaderElection is false: every replica observes.
func (*Observer) NeedLeaderElection() bool { return false }

// Start observes until ctx ends. It fails when the API server went back to an older state: the fleet would ignore all
// news until they are newer than what it knows.
func (o *Observer) Start(ctx context.Context) error {
	o.mu.Lock()
	if !o.leads {
		o.Facts.Fleet.Follow()
	}
	o.mu.Unlock()
	return o.watches.Run(ctx, o.run,
		kube.On(&corev1.Node{}, o.node, o.nodeGone),
		kube.On(&v1alpha1.ConditionSet{}, func(cs *v1alpha1.ConditionSet) { o.policies.Seen(ctx, cs) }, o.policies.Gone),
		kube.On(&appsv1.DaemonSet{}, func(*appsv1.DaemonSet) { o.daemonSets(ctx) }, func(*appsv1.DaemonSet) { o.daemonSets(ctx) }),
	)
}

func (o *Observer) run(ctx context.Context) error {
	o.Facts.Fleet.MarkSynced(o.Facts.Moment())
	o.requestAll()
	o.policies.Run(ctx)
	return nil
}

// attachNodes takes the queue of nodes of a replica that became the leader.
func (o *Observer) attachNodes(nodes kube.Queue) {
	o.nodes.Attach(nodes)
	o.becomeLeader()
}

// attachSets takes the queue of sets.
func (o *Observer) attachSets(sets kube.Queue) {
	o.policies.Statuses.Attach(sets)
	o.becomeLeader()
}

func (o *Observer) becomeLeader() {
	o.mu.Lock()
	o.leads = true
	o.mu.Unlock()
	o.Facts.Fleet.Lead(o.Facts.Moment())
	o.requestAll()
}

// requestAll asks for a look at all that is known.
func (o *Observer) requestAll() {
	if !o.Facts.Fleet.Synced() {
		return
	}
	o.request(o.Facts.Fleet.Nodes())
	o.policies.Statuses.AddAll(o.policies.Keys()...)
}

// request asks for a look at nodes.
func (o *Observer) request(nodes []string) {
	for _, name := range nodes {
		o.nodes.Add(types.NamespacedName{Name: name}, 0)
	}
}

// requestChanged asks for a look at the nodes and sets of which the fleet says that something changed.
func (o *Observer) requestChanged() {
	o.request(o.Facts.Fleet.DrainRequeues())
	for _, name := range o.Facts.Fleet.DrainDirty() {
		o.policies.Statuses.Add(types.NamespacedName{Name: name}, policy.Delay)
	}
}

// guardrails puts in force what all Guardrails together say of limits, pauses, precedence and condition types.
func (o *Observer) guardrails(all guardrail.Policy) {
	o.request(o.Facts.Fleet.SetPolicy(condition.Policy{
		Limits: all.Limits, Precedence: condition.Precedence(all.Precedence), Paused: policy.PausedBy(all).By, Frozen: all.Frozen(), DeclaredTypes: all.DeclaredTypes(),
	}, o.Facts.Moment()))
	o.requestChanged()
}

func (o *Observer) node(node *corev1.Node) {
	o.Facts.RecordNodeEvent()
	if o.Facts.Fleet.ObserveNode(node, o.Facts.Moment()) {
		o.request([]string{node.Name})
	}
	o.requestChanged()
}

func (o *Observer) nodeGone(node *corev1.Node) {
	o.Facts.RecordNodeEvent()
	o.Facts.Fleet.ForgetNode(node.Name, node.UID, o.Facts.Moment())
	o.request([]string{node.Name}) // which is forgotten there, too
	o.requestChanged()
}

// daemonSets gives the fleet the DaemonSets that nodes can't do without.
func (o *Observer) daemonSets(ctx context.Context) {
	var list appsv1.DaemonSetList
	if err := o.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		var notStarted *cache.ErrCacheNotStarted
		if !errors.As(err, &notStarted) {
			log.FromContext(ctx).Error(err, "Can't list DaemonSets from the cache")
		}
		return
	}
	var pods []ecosystem.SystemPod
	for i := range list.Items {
		if p, is := ecosystem.SystemPodOf(&list.Items[i]); is {
			pods = append(pods, p)
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
		_, err := o.watches.Add(ctx, kube.On(&coordinationv1.Lease{}, o.lease, func(*coordinationv1.Lease) {}))
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Can't watch node Leases; the reporters of conditions without a heartbeat count as silent")
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
		o.request([]string{lease.Name})
	}
}

const kindConditionSet = "ConditionSet"

type storedSet = policy.Policy[*v1alpha1.ConditionSet, parsedSet]

// parsedSet is a set as the fleet takes it.
type parsedSet struct {
	set *condition.Set
	// unreadable says why the spec can't be read.
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r parsedSet) Unreadable() error { return r.unreadable }

// read reads a set. Of one that can't be read only what is needed to undo it counts.
func read(cs *v1alpha1.ConditionSet, _ parsedSet) (r parsedSet) {
	if r.set, r.unreadable = condition.NewSet(cs); r.unreadable != nil {
		r.set = condition.Unreadable(cs)
	}
	return r
}

// update has the fleet learn what a set asks for and may do.
func (o *Observer) update(ctx context.Context, _, now storedSet) {
	cs := now.Object
	state := condition.StateOf(cs, now.Read.unreadable == nil, now.Admitted.Valid())
	o.request(o.Facts.Fleet.ObserveSet(now.Read.set, state, condition.StoredBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], o.Facts.Moment()))
	o.requestChanged()
	if o.Facts.Fleet.UsesLease() {
		o.watchLeases(ctx)
	}
}

func (o *Observer) forget(cs *v1alpha1.ConditionSet) {
	o.request(o.Facts.Fleet.ForgetSet(cs.UID, o.Facts.Moment()))
}

// isStored says whether a set of this name is stored. What a node's record says it is called may be anything.
func (o *Observer) isStored(name string) bool {
	_, ok := o.policies.Get(types.NamespacedName{Name: name})
	return ok
}

// admittedFor are the admissions that cover what a plan does to a node.
func (o *Observer) admittedFor(ctx context.Context, plan condition.Plan) []actuate.Admitted {
	var admitted []actuate.Admitted
	for _, step := range plan.Steps {
		if !step.Harmful() {
			continue
		}
		if set, ok := o.policies.Admission(ctx, types.NamespacedName{Name: step.SetName}, step.Set); ok {
			admitted = append(admitted, set.Admitted)
		}
	}
	return admitted
}
