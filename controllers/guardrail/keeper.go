package guardrail

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// keeper keeps Guardrails' statuses.
type keeper struct {
	*Observer
	Rejections *kube.Rejections
	Witnesses  *probing.Witnesses
}

func (k *keeper) steps() policy.Steps[*v1alpha1.Guardrail] {
	return policy.Steps[*v1alpha1.Guardrail]{
		New: func() *v1alpha1.Guardrail { return &v1alpha1.Guardrail{} }, Describe: k.describe,
		Gone: func(guardrail types.NamespacedName) { rejectsGauge.DeleteLabelValues(guardrail.Name) },
	}
}

// describe gathers what the status tells, once this generation is in force.
func (k *keeper) describe(_ context.Context, g *v1alpha1.Guardrail, _ policy.Left) (is policy.Description[*v1alpha1.Guardrail], err error) {
	became, ok := k.outcomeOf(g)
	if !ok {
		is.Skip = true
		return is, nil
	}
	rejected := k.Rejections.Of(g.Name)
	rejectsGauge.WithLabelValues(g.Name).Set(float64(len(rejected)))
	silent, looked := k.Witnesses.Silent(g.Name)
	is.After = g.DeepCopy()
	is.After.Status = statusOf(g, state{result: became.GuardrailResult, rejected: rejected, silent: silent, looked: looked})
	return is, nil
}
