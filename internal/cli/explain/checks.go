package explain

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
)

// Checked says which conditions of an object HealthCheckRegistrations decide: from what each check looks at and says of it to
// the condition, or why there is none.
func Checked(title, namespace string, views []snapshot.ChecksView, now time.Time) string {
	t := &text{now: now}
	if namespace != "" {
		title += " in namespace " + namespace
	}
	t.line(0, "%s", title)
	for _, v := range views {
		t.checks(v)
	}
	return t.out.String()
}

func (t *text) checks(v snapshot.ChecksView) {
	hcr := v.Registration
	switch {
	case v.Forecast == nil:
		t.line(1, "HealthCheckRegistration %s: doesn't select it", hcr.Name)
		return
	case v.Forecast.Problem != "":
		t.line(1, "HealthCheckRegistration %s: doesn't check it: %s", hcr.Name, v.Forecast.Problem)
	case v.Forecast.Suspended:
		t.line(1, "HealthCheckRegistration %s: doesn't check it while suspendWhen is true; its conditions stay as they are", hcr.Name)
	case v.Preview.Unwritable != "" && hcr.Spec.Output != v1alpha1.OutputRegistrationOnly:
		t.line(1, "HealthCheckRegistration %s: writes no condition: %s", hcr.Name, v.Preview.Unwritable)
	case hcr.Spec.Output == v1alpha1.OutputRegistrationOnly:
		t.line(1, "HealthCheckRegistration %s: writes no condition, its own status tells", hcr.Name)
	case hcr.Spec.Mode == v1alpha1.Observe:
		t.line(1, "HealthCheckRegistration %s: only observes; it would write:", hcr.Name)
	default:
		t.line(1, "HealthCheckRegistration %s:", hcr.Name)
	}
	for i := range v.Forecast.Conditions {
		for _, line := range v.Forecast.Conditions[i].Chain() {
			t.line(2, "%s", line)
		}
	}
	for _, why := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionBreakerOpen} {
		if c := meta.FindStatusCondition(hcr.Status.Conditions, why); c != nil && c.Status == metav1.ConditionTrue {
			t.line(2, "%s %s: %s", why, t.since(c.LastTransitionTime.Time), c.Message)
		}
	}
	if ready := meta.FindStatusCondition(hcr.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue {
		said := "nothing yet"
		if ready != nil {
			said = ready.Message
		}
		t.line(2, "The manager says: %s", said)
	}
}
