package policy

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
)

// Object is a policy.
type Object = kinds.Object

// Steps are what a kind brings to what the leader keeps of its policies.
type Steps[T Object] struct {
	// New gives an empty object.
	New func() T
	// Describe describes a policy; remaining is what must still be undone of one that is being deleted. What it gives besides an error is
	// used, too.
	Describe func(ctx context.Context, policy T, remaining Remaining) (Description[T], error)
	// Remaining counts what must be undone before a policy that is being deleted may go. Nil for a kind whose policies leave nothing: they
	// have no finalizer, and are described as others while somebody else's keeps them.
	Remaining func(ctx context.Context, policy T) (Remaining, error)
	// KeepsFinalizer says whether the policy needs the finalizer by now, which is given before anything is done that must be undone. Nil:
	// each policy needs it.
	KeepsFinalizer func(ctx context.Context, policy T) bool
	// Gone forgets what was reported of the policy that had this name: series, and what was written when.
	Gone func(types.NamespacedName)
}

// Remaining is what a policy did that is not undone yet.
type Remaining struct {
	// Unknown: it can't be determined, so the policy stays.
	Unknown bool
	Targets int
	// Sample names some of them.
	Sample []string
}

// Description is what a policy's status should be.
type Description[T Object] struct {
	// After is the policy with this status.
	After T
	// Skip: nothing can be reported yet, or it needn't be now. It is described again soon.
	Skip bool
	// RequeueAfter is when to describe it again though nothing changed; 0 for never.
	RequeueAfter time.Duration
	// Stored is called once the status is stored, whether that took a write or not. Optional.
	Stored func(written bool)
}

// Keeper keeps finalizers and statuses of a kind's policies, on the leader.
type Keeper[T Object] struct {
	Steps[T]
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Urgent says whether somebody waits for a policy's status. Default: it is of another generation.
	Urgent func(policy T) bool
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool

	throttle StatusThrottle
}

// Reconcile keeps one policy's finalizer and status.
func (k *Keeper[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := k.reconcile(ctx, request.NamespacedName)
	return kube.AfterConflict(ctx, result, err, Delay)
}

func (k *Keeper[T]) reconcile(ctx context.Context, name types.NamespacedName) (reconcile.Result, error) {
	policy := k.New()
	if err := k.Client.Get(ctx, name, policy); err != nil {
		if apierrors.IsNotFound(err) {
			k.throttle.Forget(name)
			k.Gone(name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if leads := k.Leads == nil || k.Leads(); !leads { // asked after the policy was known: what is written then replaces no other leader's status
		return reconcile.Result{RequeueAfter: Delay}, nil
	}
	if k.Remaining != nil && policy.GetDeletionTimestamp() != nil {
		return k.release(ctx, policy)
	}
	if k.Remaining != nil && (k.KeepsFinalizer == nil || k.KeepsFinalizer(ctx, policy)) {
		if err := kube.SetFinalizer(ctx, k.Client, policy, v1alpha1.FinalizerUndo, true); err != nil {
			return reconcile.Result{}, err
		}
	}
	if wait := k.throttle.Wait(name, k.Clock.Now(), k.urgent(policy)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return k.writeStatus(ctx, policy, Remaining{})
}

func (k *Keeper[T]) urgent(policy T) bool {
	if k.Urgent != nil && k.Urgent(policy) {
		return true
	}
	return policy.GetObservedGeneration() != policy.GetGeneration()
}

// release lets a policy go once all that it did is undone, and reports until then what is remaining.
func (k *Keeper[T]) release(ctx context.Context, policy T) (reconcile.Result, error) {
	remaining, remainingErr := k.Remaining(ctx, policy)
	if remainingErr == nil && !remaining.Unknown && remaining.Targets == 0 {
		return reconcile.Result{}, client.IgnoreNotFound(kube.SetFinalizer(ctx, k.Client, policy, v1alpha1.FinalizerUndo, false))
	}
	var err error
	if k.throttle.Wait(client.ObjectKeyFromObject(policy), k.Clock.Now(), false) == 0 {
		_, err = k.writeStatus(ctx, policy, remaining)
	}
	if remainingErr != nil {
		return reconcile.Result{}, errors.Join(remainingErr, err) // what is due isn't paced as what is refused
	}
	return reconcile.Result{RequeueAfter: Delay}, err
}

// writeStatus writes the status that a policy should have, and reports transitions of its conditions.
func (k *Keeper[T]) writeStatus(ctx context.Context, policy T, remaining Remaining) (reconcile.Result, error) {
	description, describeErr := k.Describe(ctx, policy, remaining)
	if description.Skip {
		return reconcile.Result{RequeueAfter: max(description.RequeueAfter, Delay)}, describeErr
	}
	before := policy.GetConditions()
	written, err := kube.WriteStatus(ctx, k.Client, policy, description.After)
	if err != nil {
		return reconcile.Result{}, errors.Join(err, describeErr)
	}
	if written {
		EmitTransitions(k.Events, policy, before, description.After.GetConditions())
	}
	if description.Stored != nil {
		description.Stored(written)
	}
	return reconcile.Result{RequeueAfter: description.RequeueAfter}, describeErr
}

// accepted says whether a policy's status says that the rules admit it.
func accepted(policy Object) bool {
	return meta.IsStatusConditionTrue(policy.GetConditions(), v1alpha1.ConditionAccepted)
}

// Options are what the controllers of every kind need.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Stored confirms just before an act that the rules in force are those that are stored.
	Stored *kube.Stored
	// Rejections learns which rules refuse which policies.
	Rejections *kube.Rejections
	// Leads says whether this replica surely leads, just before each act and each status. Default: it does.
	Leads func() bool
}

// Current confirms just before an act that a policy and the rules are stored as they were judged.
func (o *Options) Current(mgr manager.Manager) *kube.Generations {
	return &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stored: o.Stored}
}

// AddToManager adds a controller of this name that keeps the policies, with the manager's client, recorder and clock where the keeper has
// none; lead takes its queue once this replica leads.
func (k *Keeper[T]) AddToManager(mgr manager.Manager, name string, workers int, lead func(kube.Queue)) error {
	k.Client = mgr.GetClient()
	if k.Events == nil {
		k.Events = mgr.GetEventRecorder("autohealer")
	}
	if k.Clock == nil {
		k.Clock = clock.RealClock{}
	}
	return kube.AddController(mgr, name, k, workers, lead)
}

var evaluations = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "autohealer_policy_evaluations_total",
	Help: "How often all rules were evaluated for stored policies at run time, by kind.",
}, []string{"kind"})

// RegisterMetrics adds the metric to the manager's registry; what registered before, another kind or manager, shares it.
func RegisterMetrics() error {
	return metric.Register(evaluations)
}
