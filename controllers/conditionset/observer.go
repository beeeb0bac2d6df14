package conditionset

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
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
	types, err := all.Registry()
	if err != nil {
		log.Log.Error(err, "Left out declared condition types")
	}
	o.request(o.Facts.Fleet.SetPolicy(condition.Policy{
		Limits: all.Limits, Precedence: condition.Precedence(all.Precedence), Paused: policy.PausedBy(all).By, Frozen: all.Frozen(), Types: types,
	}, o.Facts.Moment()))
	o.requestChanged()
}
