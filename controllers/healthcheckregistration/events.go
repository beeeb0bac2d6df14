package healthcheckregistration

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Reporter tells of conditions that changed: Events for people, metrics for machines.
type Reporter struct {
	Events events.EventRecorder
	acts   *kube.ActEvents
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: kube.NewActEvents(recorder, dropped)}
}

// acted tells of a condition that was written or removed, on the target and on each registration that decides it. One whose
// status is as before is counted alone.
func (r *Reporter) acted(target *unstructured.Unstructured, deciders []decider, step health.Step, now time.Time) {
	count(deciders, step, "done")
	if !step.Remove && step.Before == step.Condition.Status {
		return
	}
	reason, note := told(step)
	for _, d := range deciders {
		r.acts.Tell(now, refOf(target), registrationRef(d), reason, verb(step), note)
	}
	if len(deciders) == 0 {
		r.Events.Eventf(refOf(target), nil, corev1.EventTypeNormal, reason, verb(step), "%s", note)
	}
}

// failed counts a write that didn't come about; the controller logs the error itself.
func (r *Reporter) failed(deciders []decider, step health.Step, err error) {
	if isStale(err) {
		count(deciders, step, "stale")
		return
	}
	count(deciders, step, "failed")
}

func verb(step health.Step) string {
	if step.Remove {
		return "RemoveCondition"
	}
	return "SetCondition"
}

func told(step health.Step) (reason, note string) {
	c := &step.Condition
	if step.Remove {
		return v1alpha1.ReasonConditionRemoved, fmt.Sprintf("Condition %s is removed: no HealthCheckRegistration decides it any more, or one asks for that.", c.Type)
	}
	before := string(step.Before)
	if before == "" {
		before = "not there"
	}
	return v1alpha1.ReasonConditionChanged, fmt.Sprintf("Condition %s is %s, and was %s: %s", c.Type, c.Status, before, shortened(c.Message))
}

func refOf(target *unstructured.Unstructured) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: target.GetAPIVersion(), Kind: target.GetKind(), Namespace: target.GetNamespace(), Name: target.GetName(), UID: target.GetUID(),
	}
}

func registrationRef(d decider) *v1alpha1.HealthCheckRegistration {
	return &v1alpha1.HealthCheckRegistration{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindRegistration},
		ObjectMeta: metav1.ObjectMeta{Name: d.registration.Name, UID: d.registration.UID},
	}
}
