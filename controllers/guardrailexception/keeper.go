package guardrailexception

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/metric"
	"github.com/resourcestack/autohealer/internal/policy"
)

// keeper keeps GuardrailExceptions' statuses.
type keeper struct {
	*Observer
	Client client.Client
	Clock  clock.PassiveClock
}

func (k *keeper) steps() policy.Steps[*v1alpha1.GuardrailException] {
	return policy.Steps[*v1alpha1.GuardrailException]{
		New: func() *v1alpha1.GuardrailException { return &v1alpha1.GuardrailException{} }, Describe: k.describe,
		Gone: func(exception types.NamespacedName) { activeGauge.DeleteLabelValues(exception.Name) },
	}
}

// describe gathers what the status tells.
func (k *keeper) describe(ctx context.Context, x *v1alpha1.GuardrailException, _ policy.Left) (is policy.Description[*v1alpha1.GuardrailException], err error) {
	now := k.Clock.Now()
	st, err := k.observe(ctx, x)
	if err != nil {
		is.Skip = true
		return is, err
	}
	st.now = now
	is.After = x.DeepCopy()
	is.After.Status = statusOf(x, st)
	ready := meta.FindStatusCondition(is.After.Status.Conditions, v1alpha1.ConditionReady)
	activeGauge.WithLabelValues(x.Name).Set(metric.Bool(ready.Reason == v1alpha1.ReasonActive))
	is.Again = next(now, st.ends, st.verdict.RecheckAt, st.target.recheckAt)
	return is, nil
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
func (k *keeper) observe(ctx context.Context, x *v1alpha1.GuardrailException) (st state, err error) {
	g := k.Guard
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
			st.unknown = append(st.unknown, id)
		case !rule.Exceptable:
			st.fixed = append(st.fixed, id)
		case rule.AtRunTime:
			st.atRunTime = append(st.atRunTime, id)
		}
	}
	st.target, err = readTarget(ctx, k.Client, g, ref)
	return st, err
}
