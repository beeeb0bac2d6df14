package conditionset

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/policy"
)

// steps keep sets' finalizers and statuses. The acting is the NodeReconciler's.
func (o *Observer) steps() policy.Steps[*v1alpha1.ConditionSet] {
	return policy.Steps[*v1alpha1.ConditionSet]{
		New: func() *v1alpha1.ConditionSet { return &v1alpha1.ConditionSet{} }, Describe: o.describe, Left: o.left, Gone: forgetStates,
	}
}

// left counts the nodes that carry a record of the set.
func (o *Observer) left(_ context.Context, cs *v1alpha1.ConditionSet) (left policy.Left, err error) {
	fleet := o.Facts.Fleet
	left.Targets, left.Sample = fleet.Recorded(cs.UID)
	left.Unknown = !fleet.Synced() || left.Targets == 0 && !fleet.Undone(cs.UID)
	return left, nil
}

// describe computes the status, once this generation is judged by known rules.
func (o *Observer) describe(_ context.Context, cs *v1alpha1.ConditionSet, left policy.Left) (is policy.Description[*v1alpha1.ConditionSet], err error) {
	set, ok := o.policies.Current(cs)
	if !ok {
		return policy.Description[*v1alpha1.ConditionSet]{Skip: true}, nil
	}
	st := statusInput{storedSet: set, synced: o.Facts.Fleet.Synced(), trouble: o.policies.Troubles.Get(cs.UID), left: left}
	if st.summary, ok = o.Facts.Fleet.Summary(cs.UID, o.Facts.Moment()); !ok {
		st.summary = condition.Summary{}
	}
	is.After = cs.DeepCopy()
	is.After.Status = statusOf(cs, st)
	is.Again = max(policy.Delay, set.Read.set.StaleAfter) // no event shows that a reporter fell silent
	gaugeStates(cs.Name, st.summary, meta.IsStatusConditionTrue(is.After.Status.Conditions, v1alpha1.ConditionLimitReached))
	return is, nil
}
