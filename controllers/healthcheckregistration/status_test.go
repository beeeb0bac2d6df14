package healthcheckregistration

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/policy"
)

func TestStatusTellsOfTargetsOnceAllWereLookedAt(t *testing.T) {
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.UID, hcr.Generation = "r", 1
	b := following("r").results("r")
	b.update(hcr, noon)
	targets := []checking.Target{targetNamed("a"), targetNamed("b")}
	tells := func() string {
		t.Helper()
		after := statusOf(hcr, statusInput{synced: true, complete: b.allEvaluated(func() []checking.Target { return targets }), summary: b.summary()})
		hcr.Status = after
		c := meta.FindStatusCondition(after.Conditions, "TargetsHealthy")
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	is := func(when, want string) {
		t.Helper()
		if got := tells(); got != want {
			t.Errorf("%s: %s", when, got)
		}
	}
	const unknown = "Unknown Starting: Not all targets are checked yet."
	is("none looked at", unknown)
	b.record(targets[0], found(health.True, "m"))
	is("one looked at", unknown)
	b.record(targets[1], found(health.True, "m"))
	is("both looked at", "True AllHealthy: 2 of 2 targets are healthy.")
	targets = append(targets, targetNamed("c"))
	is("another came", "True AllHealthy: 2 of 2 targets are healthy.")
	b.record(targets[2], found(health.False, "m"))
	is("and was looked at", "False SomeUnhealthy: 2 of 3 targets are healthy.")

	hcr.Generation = 2
	b.update(hcr, noon)
	is("other checks", unknown)
	frozen := statusInput{synced: true, storedRegistration: storedRegistration{Pause: policy.Pause{By: "a freeze", Frozen: true}}, summary: b.summary()}
	if c := targetsHealthy(frozen); c.Reason != "Frozen" || c.Message != "Targets aren't checked while everything is frozen; the counts are those of before." {
		t.Errorf("edited while everything is frozen: %s: %s", c.Reason, c.Message)
	}
	if says := commonConditions(hcr, frozen).Summary; says != "Targets aren't checked meanwhile; the counts are those of before." {
		t.Errorf("edited while everything is frozen, Ready says %s", says)
	}
	if hcr.Status.Targets != 3 || hcr.Status.Unhealthy != 1 {
		t.Errorf("counts went: %+v", hcr.Status)
	}
	b.drop(targets[0])
	targets = nil
	is("no targets", "True AllHealthy: 0 of 0 targets are healthy.")
}
