package weederconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/policy"
)

// steps keep configs' statuses. The acting is the PodReconciler's, and a deleted pod needs no undoing.
func (o *Observer) steps() policy.Steps[*v1alpha1.WeederConfig] {
	return policy.Steps[*v1alpha1.WeederConfig]{
		New: func() *v1alpha1.WeederConfig { return &v1alpha1.WeederConfig{} }, Describe: o.describe, Gone: forgetStates,
	}
}

// describe gathers what the status tells, once this generation is judged and the rules are known by which it was.
func (o *Observer) describe(_ context.Context, wc *v1alpha1.WeederConfig, _ policy.Left) (is policy.Description[*v1alpha1.WeederConfig], err error) {
	unknown := policy.Description[*v1alpha1.WeederConfig]{Skip: true}
	config, ok := o.policies.Current(wc)
	if !ok || config.Object.ResourceVersion != wc.ResourceVersion { // the planner knows another status
		return unknown, nil
	}
	st := state{storedConfig: config, synced: o.weeder().Synced(), trouble: o.policies.Troubles.Get(wc.UID)}
	if st.summary, ok = o.weeder().Summary(wc.UID, o.moment()); !ok && config.Read.unreadable == nil {
		return unknown, nil
	}
	is.After = wc.DeepCopy()
	is.After.Status = statusOf(wc, st)
	gaugeStates(client.ObjectKeyFromObject(wc), st.summary, meta.IsStatusConditionTrue(is.After.Status.Conditions, v1alpha1.ConditionLimitReached))
	return is, nil
}
