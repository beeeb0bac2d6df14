package explain

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// Dependent is an object that ProbeConfigs may scale, as a snapshot has it.
type Dependent struct {
	Namespace, Kind, Name string
	// Configs are the ProbeConfigs that name it.
	Configs []v1alpha1.ProbeConfig
	// Hold on it, nil for none.
	Hold *hold.Hold
}

// dependent tells what ProbeConfigs did to an object and would do, by what the manager wrote into their status.
func (t *text) dependent(d Dependent) {
	if d.Hold.Holds(t.now, t.now) {
		t.line(1, "Left alone: %s.", d.Hold.Says(t.now))
	}
	for i := range d.Configs {
		pc := &d.Configs[i]
		t.line(1, "ProbeConfig %s: %s", configName(pc, d.Namespace), t.scaling(pc, d))
		for _, condition := range []string{v1alpha1.ConditionInternalHealthy, v1alpha1.ConditionExternalHealthy} {
			t.condition(pc, condition)
		}
		for _, why := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionBreakerOpen, v1alpha1.ConditionLimitReached} {
			if meta.IsStatusConditionTrue(pc.Status.Conditions, why) {
				t.condition(pc, why)
			}
		}
		if ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			t.line(2, "The manager says: %s", ready.Message)
		}
	}
}

// scaling says what a config did to an object, and what would end it; or when it would do it.
func (t *text) scaling(pc *v1alpha1.ProbeConfig, d Dependent) string {
	i := slices.IndexFunc(pc.Status.Scaled, func(s v1alpha1.ScaledDependent) bool {
		return s.Namespace == d.Namespace && s.Ref.Kind == d.Kind && s.Ref.Name == d.Name
	})
	switch {
	case i >= 0:
		s := pc.Status.Scaled[i]
		return fmt.Sprintf("scaled down from %s %s; it gets them back a minute after the probe from outside succeeds again", counted(int(s.PreviousReplicas), "replica"), t.since(s.Since.Time))
	case pc.DeletionTimestamp != nil:
		return "is being deleted, and did nothing to it"
	case pc.Spec.Mode == v1alpha1.Observe:
		return "only observes; it would be scaled down while the probe from inside succeeds and the one from outside fails"
	}
	return "did nothing to it; it is scaled down while the probe from inside succeeds and the one from outside fails"
}

func (t *text) condition(pc *v1alpha1.ProbeConfig, conditionType string) {
	c := meta.FindStatusCondition(pc.Status.Conditions, conditionType)
	if c == nil {
		return
	}
	says := fmt.Sprintf("%s is %s %s", conditionType, c.Status, t.since(c.LastTransitionTime.Time))
	if c.Status != metav1.ConditionTrue || !strings.HasSuffix(conditionType, "Healthy") {
		says += ": " + c.Message
	}
	t.line(2, "%s", says)
}

func configName(pc *v1alpha1.ProbeConfig, namespace string) string {
	if pc.Namespace == namespace {
		return pc.Name
	}
	return pc.Namespace + "/" + pc.Name
}
