package guardrailexception

import (
	"context"

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
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	if wait := r.pace.Wait(x.UID, now, x.Status.ObservedGeneration != x.Generation); wait > 0 {
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
	if st.ends.After(now) {
		return reconcile.Result{RequeueAfter: st.ends.Sub(now)}, nil // no event tells that its time is over
	}
	return reconcile.Result{}, nil
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
