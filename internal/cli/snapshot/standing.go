package snapshot

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// ruleRights is the rule over what a WeederConfig's account may do.
const ruleRights = "weederconfig/account-may-not-delete"

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
