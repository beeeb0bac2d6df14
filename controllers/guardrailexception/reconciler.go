package guardrailexception

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Reconciler keeps a GuardrailException's status.
type Reconciler struct {
	Client   client.Client
	Observer *Observer
	Events   events.EventRecorder
	Clock    clock.PassiveClock

	pace status.Pace
}

// Reconcile keeps one exception's status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	x := &v1alpha1.GuardrailException{}
	if err := r.Client.Get(ctx, request.NamespacedName, x); err != nil {
		forgetException(request.Name)
		r.pace.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	if wait := r.pace.Wait(request.NamespacedName, now, x.Status.ObservedGeneration != x.Generation); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	st, err := r.observe(ctx, x)
	if err != nil {
		return reconcile.Result{}, err
	}
	st.now = now
	after := x.DeepCopy()
	after.Status = statusOf(x, st)
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	gaugeException(x.Name, ready.Reason == v1alpha1.ReasonActive)
	written, err := kube.WriteStatus(ctx, r.Client, x, after)
	if err != nil {
		return reconcile.Result{}, err
	}
	if written {
		status.Tell(r.Events, x, x.Status.Conditions, after.Status.Conditions)
	}
	return reconcile.Result{RequeueAfter: next(now, st.ends, st.verdict.RecheckAt, st.target.recheckAt)}, nil
}

// next is the time until the first of these moments that is still to come, since no event tells of it; 0 when none is.
func next(now time.Time, moments ...time.Time) time.Duration {
	var until time.Duration
	for _, at := range moments {
		if left := at.Sub(now) + kube.PastDeadline; at.After(now) && (until == 0 || left < until) {
			until = left
		}
	}
	return until
}

// observe gathers what the status tells.
func (r *Reconciler) observe(ctx context.Context, x *v1alpha1.GuardrailException) (st state, err error) {
	g := r.Observer.Guard
	_, st.verdict = guard.Admit(ctx, g, x)
	st.ends = guardrail.Ends(x)
	ref := x.Spec.TargetRef
	rules := map[string]guard.RuleInfo{}
	for _, rule := range g.Rules(ref.Kind) {
		rules[rule.ID] = rule
	}
	for _, id := range x.Spec.RuleIDs {
		rule, known := rules[id]
		switch {
		case !known:
			st.cant = append(st.cant, id+" is no rule for "+ref.Kind)
		case !rule.Exceptable:
			st.cant = append(st.cant, id+" isn't exceptable")
		case rule.AtRunTime:
			st.atRunTime = append(st.atRunTime, id)
		}
	}
	st.target, err = r.Observer.targets.read(ctx, r.Client, g, ref)
	return st, err
}
