package explain

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// Checked says which conditions of an object HealthCheckRegistrations decide: from what each check looks at and says of it to
// the condition, or why there is none.
func Checked(title, namespace string, of snapshot.CheckedView, now time.Time) string {
	t := &explanation{now: now}
	if namespace != "" {
		title += " in namespace " + namespace
	}
	t.line(0, "%s", title)
	for _, v := range of.Checks {
		t.checks(v)
	}
	for _, conditionType := range of.Undecided {
		t.line(1, "%s → removed: no HealthCheckRegistration decides it any more, or one asks for its removal", conditionType)
	}
	return t.out.String()
}

func (t *explanation) checks(v snapshot.ChecksView) {
	t.line(1, "HealthCheckRegistration %s:%s", v.Registration.Name, how(v))
	if v.Target == nil {
		return
	}
	for i := range v.Target.Conditions {
		if v.Target.Conditions[i].Removed {
			continue // reported of the object
		}
		for _, line := range v.Target.Conditions[i].Chain() {
			t.line(2, "%s", line)
		}
	}
	t.manager(&v.Registration.Status)
}

// how a registration decides an object's conditions, and why it doesn't.
func how(v snapshot.ChecksView) string {
	spec := &v.Registration.Spec
	switch {
	case v.Unreadable != "":
		return " can't be read, so what it wrote stays: " + v.Unreadable
	case v.Target == nil:
		return " doesn't select it"
	case v.Target.Why != "" && v.Target.State == lifecycle.Deleted:
		return " decides nothing: " + v.Target.Why
	case v.Target.Why != "":
		return " doesn't check it, and its conditions stay as they are: " + v.Target.Why
	case v.Target.Problem != "":
		return " doesn't check it: " + v.Target.Problem
	case v.Target.Suspended:
		return " doesn't check it while suspendWhen is true; its conditions stay as they are"
	case spec.Output == v1alpha1.OutputRegistrationOnly:
		return " writes no condition: the result is in its own status"
	case v.Unwritable != "":
		return " writes no condition: " + v.Unwritable
	case spec.Mode == v1alpha1.Observe:
		return " only observes; it would write:"
	}
	return ""
}

// manager says what the manager says of the registration.
func (t *explanation) manager(status *v1alpha1.HealthCheckRegistrationStatus) {
	for _, why := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionBreakerOpen} {
		if c := meta.FindStatusCondition(status.Conditions, why); c != nil && c.Status == metav1.ConditionTrue {
			t.line(2, "%s %s: %s", why, t.since(c.LastTransitionTime.Time), c.Message)
		}
	}
	switch ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); {
	case ready == nil:
		t.line(2, "The manager says: nothing yet")
	case ready.Status != metav1.ConditionTrue:
		t.line(2, "The manager says: %s", ready.Message)
	}
}
