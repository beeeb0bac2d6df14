package snapshot

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// ruleRights is the rule over what a WeederConfig's account may do.
const ruleRights = "weederconfig/account-may-not-delete"

// judged says whether the manager has said what rules say of a registration as it is now.
func judged(hcr *v1alpha1.HealthCheckRegistration) bool {
	accepted := meta.FindStatusCondition(hcr.Status.Conditions, v1alpha1.ConditionAccepted)
	return hcr.DeletionTimestamp != nil || accepted != nil && accepted.ObservedGeneration == hcr.Generation
}

// StateOfChecks is what a stored registration may do under a policy, by what the manager last said that rules said, and why it may
// do no more.
func StateOfChecks(hcr *v1alpha1.HealthCheckRegistration, policy guardrail.Policy) (lifecycle.State, string) {
	accepted := meta.FindStatusCondition(hcr.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case policy.Frozen():
		return lifecycle.Frozen, "everything is frozen by Guardrail " + strings.Join(policy.FrozenBy, ", ")
	case hcr.DeletionTimestamp != nil:
		return lifecycle.Deleted, "it is being deleted"
	case accepted == nil:
		return lifecycle.Deleted, "the manager hasn't judged it yet" // it decides as little as one that goes
	case !judged(hcr):
		return lifecycle.NotJudged, "the manager hasn't judged it as it is now"
	case hcr.Spec.Mode == v1alpha1.Observe:
		return lifecycle.Observing, ""
	case accepted.Status != metav1.ConditionTrue:
		return lifecycle.Refused, "the rules refuse HealthCheckRegistration " + hcr.Name
	case !slices.Contains(hcr.Finalizers, v1alpha1.FinalizerUndo):
		return lifecycle.Unrecorded, "the manager hasn't given it its finalizer"
	case policy.Paused():
		return lifecycle.Paused, "new acts are paused by Guardrail " + strings.Join(policy.PausedBy, ", ")
	}
	return lifecycle.Active, ""
}

// StateOfWeeder is what a stored config may do while acts are paused or not, by what the manager last said that rules said.
// Who asks may not be allowed to ask what the config's account may do, and a file can't be asked.
func StateOfWeeder(wc *v1alpha1.WeederConfig, paused bool) lifecycle.State {
	accepted := meta.FindStatusCondition(wc.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case accepted == nil, accepted.ObservedGeneration != wc.Generation:
		return lifecycle.NotJudged
	case accepted.Status != metav1.ConditionTrue && strings.HasPrefix(accepted.Message, ruleRights) && !strings.Contains(accepted.Message, "\n"):
		return lifecycle.Forbidden // nothing else refuses it
	case accepted.Status != metav1.ConditionTrue:
		return lifecycle.Refused
	case paused:
		return lifecycle.Paused
	}
	return lifecycle.Active
}
