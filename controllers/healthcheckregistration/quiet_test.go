package healthcheckregistration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestAStatusThatOnlyCountsIsWrittenEveryTenSeconds(t *testing.T) {
	told := func(change func(*v1alpha1.HealthCheckRegistrationStatus)) *v1alpha1.HealthCheckRegistrationStatus {
		s := &v1alpha1.HealthCheckRegistrationStatus{ObservedGeneration: 1, Healthy: 1, Conditions: []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "Operative", Message: "1 of 2"}, {Type: "TargetsHealthy", Status: "True", Reason: "AllHealthy"},
		}}
		if change != nil {
			change(s)
		}
		return s
	}
	before := told(nil)
	open := func(id string) *v1alpha1.HealthCheckRegistrationStatus {
		return told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.Breaker = &v1alpha1.Breaker{ID: id} })
	}
	q := &registrationResults{}
	q.statusWritten(noon)
	if wait := q.statusDelay(open("b"), open("c"), noon.Add(time.Second)); wait != 0 {
		t.Errorf("another opening, which a reset must name, waits for %s", wait)
	}
	for name, c := range map[string]struct {
		after *v1alpha1.HealthCheckRegistrationStatus
		want  time.Duration // four seconds after the last write
	}{
		"nothing":    {told(nil), 0},
		"counts":     {told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.Healthy = 2 }), 6 * time.Second},
		"words":      {told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.Conditions[0].Message = "2 of 2" }), 6 * time.Second},
		"targets":    {told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.Conditions[1].Status = "False" }), 6 * time.Second},
		"a reason":   {told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.Conditions[0].Reason = "Frozen" }), 0},
		"readiness":  {told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.Conditions[0].Status = "False" }), 0},
		"generation": {told(func(s *v1alpha1.HealthCheckRegistrationStatus) { s.ObservedGeneration = 2 }), 0},
		"breaker":    {open("b"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := &registrationResults{}
			if wait := q.statusDelay(before, c.after, noon); wait != 0 {
				t.Errorf("the first write waits for %s", wait)
			}
			q.statusWritten(noon)
			if wait := q.statusDelay(before, c.after, noon.Add(4*time.Second)); wait != c.want {
				t.Errorf("it waits for %s, not %s", wait, c.want)
			}
			if wait := q.statusDelay(before, c.after, noon.Add(10*time.Second)); wait != 0 {
				t.Errorf("after ten seconds it waits for %s", wait)
			}
		})
	}
}
