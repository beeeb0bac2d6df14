package snapshot

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// ruleRights is the rule over what a WeederConfig's account may do.
const ruleRights = "weederconfig/account-may-not-delete"

// judged says whether the manager has said what rules say of a registration as it is now.
func judged(hcr *v1alpha1.HealthCheckRegistration) bool {
	accepted := meta.FindStatusCondition(hcr.Status.Conditions, v1alpha1.ConditionAccepted)
	return hcr.DeletionTimestamp != nil || accepted != nil && accepted.ObservedGeneration == hcr.Generation
}

// ChecksStanding is what a stored registration may do under a policy, by what the manager last said that rules said, and why it may
// do no more.
func ChecksStanding(hcr *v1alpha1.HealthCheckRegistration, policy guardrail.Policy) (registration.Standing, string) {
	accepted := meta.FindStatusCondition(hcr.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case policy.Frozen():
		return registration.Frozen, "everything is frozen by Guardrail " + strings.Join(policy.FrozenBy, ", ")
	case hcr.DeletionTimestamp != nil:
		return registration.Withdrawn, "it is being deleted"
	case accepted == nil:
		return registration.Withdrawn, "the manager hasn't judged it yet"
	case !judged(hcr):
		return registration.Frozen, "the manager hasn't judged it as it is now"
	case hcr.Spec.Mode == v1alpha1.Observe:
		return registration.Watching, ""
	case !slices.Contains(hcr.Finalizers, v1alpha1.FinalizerUndo):
		return registration.Frozen, "the manager hasn't given it its finalizer"
	case accepted.Status != metav1.ConditionTrue:
		return registration.Held, "the rules refuse HealthCheckRegistration " + hcr.Name
	case policy.Paused():
		return registration.Held, "new acts are paused by Guardrail " + strings.Join(policy.PausedBy, ", ")
	}
	return registration.Active, ""
}

// WeederStanding is what a stored config may do while acts are paused or not, by what the manager last said that rules said.
// Who asks may not be allowed to ask what the config's account may do, and a file can't be asked.
func WeederStanding(wc *v1alpha1.WeederConfig, paused bool) weed.Standing {
	accepted := meta.FindStatusCondition(wc.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case accepted == nil, accepted.ObservedGeneration != wc.Generation:
		return weed.Frozen
	case accepted.Status != metav1.ConditionTrue && strings.HasPrefix(accepted.Message, ruleRights) && !strings.Contains(accepted.Message, "\n"):
		return weed.Forbidden // nothing else refuses it
	case accepted.Status != metav1.ConditionTrue:
		return weed.Refused
	case paused:
		return weed.Paused
	}
	return weed.Active
}
