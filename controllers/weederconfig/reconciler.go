package weederconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Reconciler keeps a WeederConfig's status. The acting is the PodReconciler's. There is no finalizer: a deleted pod needs no
// undoing.
type Reconciler struct {
	Client   client.Client
	Observer *Observer
	Troubles *status.Troubles
	Report   *Reporter
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool

	pace status.Pace
}

// Reconcile keeps one config's status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	wc := &v1alpha1.WeederConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, wc); err != nil {
		forgetStates(request.NamespacedName)
		r.pace.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wc.DeletionTimestamp != nil {
		r.Troubles.Forget(wc.UID)
		return reconcile.Result{}, nil
	}
	if wait := r.pace.Wait(request.NamespacedName, r.Observer.Facts.Clock.Now(), r.urgent(wc)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	st, ok := r.observe(wc)
	leads := r.Leads == nil || r.Leads() // asked after wc was known: what is written then replaces no other leader's status
	if !ok || !leads {
		return reconcile.Result{RequeueAfter: status.Delay}, nil
	}
	return reconcile.Result{}, r.writeStatus(ctx, wc, st)
}

// urgent: whoever changed a config or a rule wants to see what is refused.
func (r *Reconciler) urgent(wc *v1alpha1.WeederConfig) bool {
	j, judged := r.Observer.judge.Of(client.ObjectKeyFromObject(wc))
	accepted := meta.IsStatusConditionTrue(wc.Status.Conditions, v1alpha1.ConditionAccepted)
	return wc.Status.ObservedGeneration != wc.Generation || judged && !j.Outdated && j.Read.unreadable == nil && accepted != j.Verdict.Allowed
}

// observe gathers what the status tells; ok is false while this generation isn't judged, and while the rules aren't known by
// which it would be.
func (r *Reconciler) observe(wc *v1alpha1.WeederConfig) (st state, ok bool) {
	facts := r.Observer.Facts
	st.judgement, ok = r.Observer.judge.Of(client.ObjectKeyFromObject(wc))
	if !ok || !st.judgement.Settled(wc) || st.judgement.Object.ResourceVersion != wc.ResourceVersion { // the yard knows another status
		return st, false
	}
	if st.paused, ok = r.Observer.judge.PausedBy(); !ok {
		return st, false
	}
	st.synced = facts.Yard.Synced()
	st.trouble = r.Troubles.Get(wc.UID)
	st.summary, ok = facts.Yard.Summary(wc.UID, r.Observer.moment())
	return st, ok || st.judgement.Read.unreadable != nil
}

// writeStatus writes what changed.
func (r *Reconciler) writeStatus(ctx context.Context, wc *v1alpha1.WeederConfig, st state) error {
	after := wc.DeepCopy()
	after.Status = statusOf(wc, st)
	limited := meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionLimitReached)
	gaugeStates(client.ObjectKeyFromObject(wc), st.summary, limited)
	written, err := kube.WriteStatus(ctx, r.Client, wc, after)
	if err != nil {
		return err
	}
	if written {
		status.Tell(r.Report.Events, wc, wc.Status.Conditions, after.Status.Conditions)
	}
	return nil
}
