package conditionset

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Reconciler keeps a ConditionSet's finalizer and status. The acting is the NodeReconciler's.
type Reconciler struct {
	Client   client.Client
	Observer *Observer
	Troubles *status.Troubles
	Report   *Reporter
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool

	pace status.Pace
}

// Reconcile keeps one set's finalizer and status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cs := &v1alpha1.ConditionSet{}
	if err := r.Client.Get(ctx, request.NamespacedName, cs); err != nil {
		forgetStates(request.Name)
		r.pace.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cs.DeletionTimestamp != nil {
		return r.release(ctx, cs)
	}
	if err := kube.SetFinalizer(ctx, r.Client, cs, v1alpha1.FinalizerUndo, true); err != nil {
		return reconcile.Result{}, err
	}
	if wait := r.pace.Wait(request.NamespacedName, r.Observer.Facts.Clock.Now(), r.urgent(cs)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	st, ok := r.observe(cs)
	if !ok {
		return reconcile.Result{RequeueAfter: status.Delay}, nil
	}
	return r.writeStatus(ctx, cs, st)
}

// urgent: acting waits for the recorded key, and whoever changed a rule to see what it refuses.
func (r *Reconciler) urgent(cs *v1alpha1.ConditionSet) bool {
	j, judged := r.Observer.judge.Of(types.NamespacedName{Name: cs.Name})
	accepted := meta.IsStatusConditionTrue(cs.Status.Conditions, v1alpha1.ConditionAccepted)
	return cs.Status.ObservedGeneration != cs.Generation || judged && !j.Outdated && j.Read.unreadable == nil && accepted != j.Verdict.Allowed
}

// release lets a deleted set go once no node carries its record any more, and says until then what it waits for.
func (r *Reconciler) release(ctx context.Context, cs *v1alpha1.ConditionSet) (reconcile.Result, error) {
	fleet, facts := r.Observer.Facts.Fleet, r.Observer.Facts
	leads := r.Leads == nil || r.Leads()
	if !leads || !fleet.Synced() || !fleet.Undone(cs.UID) {
		if st, ok := r.observe(cs); ok && r.pace.Wait(client.ObjectKeyFromObject(cs), facts.Clock.Now(), false) == 0 {
			st.undoing, st.on = fleet.Recorded(cs.UID)
			if _, err := r.writeStatus(ctx, cs, st); err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{RequeueAfter: status.Delay}, nil
	}
	r.Troubles.Forget(cs.UID)
	return reconcile.Result{}, client.IgnoreNotFound(kube.SetFinalizer(ctx, r.Client, cs, v1alpha1.FinalizerUndo, false))
}

// observe gathers what the status tells; ok is false while the observer hasn't seen this generation, and while the rules
// aren't known by which it would be judged.
func (r *Reconciler) observe(cs *v1alpha1.ConditionSet) (st state, ok bool) {
	facts := r.Observer.Facts
	st.judgement, ok = r.Observer.judge.Of(types.NamespacedName{Name: cs.Name})
	if !ok || !st.judgement.Settled(cs) {
		return st, false
	}
	if st.paused, ok = r.Observer.judge.PausedBy(); !ok {
		return st, false
	}
	st.synced = facts.Fleet.Synced()
	st.trouble = r.Troubles.Get(cs.UID)
	if st.summary, ok = facts.Fleet.Summary(cs.UID, facts.Moment()); !ok {
		st.summary = condition.Summary{}
	}
	return st, true
}

// writeStatus writes what changed.
func (r *Reconciler) writeStatus(ctx context.Context, cs *v1alpha1.ConditionSet, st state) (reconcile.Result, error) {
	after := cs.DeepCopy()
	after.Status = statusOf(cs, st)
	limited := meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionLimitReached)
	gaugeStates(cs.Name, st.summary, limited)
	written, err := kube.WriteStatus(ctx, r.Client, cs, after)
	if err != nil {
		return reconcile.Result{}, err
	}
	if written {
		status.Tell(r.Report.Events, cs, cs.Status.Conditions, after.Status.Conditions)
	}
	return reconcile.Result{RequeueAfter: max(status.Delay, st.judgement.Read.set.StaleAfter)}, nil // no event tells that a reporter fell silent
}
