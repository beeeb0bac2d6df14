package dependents_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// has gives the first target a condition, and annotations.
func (o *objects) has(status, reason, message string, annotations map[string]string) {
	for _, target := range o.targets {
		target.SetAnnotations(annotations)
		target.Object["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": "EveryNodeReady", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-22T05:00:00Z",
		}}}
	}
}

// wereWell have a condition that is True, and ours.
func (o *objects) wereWell() { o.has("True", "HealthCheckSuccessful", allWell, claimed) }

const allWell = "(1/1) Health checks successful"

var claimed = map[string]string{"autohealer.resourcestack.com/owned-conditions": "EveryNodeReady"}

func TestAClaimAloneMakesNoConditionOurs(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", false, "")
	o.has("True", "AllIsWell", "as somebody else says it", claimed)
	forecast, items := tell(t, o, mcm)
	if !slices.Equal(forecast.ForeignConditions, []string{"EveryNodeReady of shoot--a/w"}) || items.Writes != 0 {
		t.Errorf("the forecast is %+v, and %d would be written", forecast, items.Writes)
	}
	o.has("True", "HealthCheckSuccessful", allWell, claimed)
	if forecast, items = tell(t, o, mcm); len(forecast.ForeignConditions) != 0 || forecast.WouldFail != 1 || items.Writes != 1 {
		t.Errorf("of ours the forecast is %+v, and %d would be written", forecast, items.Writes)
	}
}

func TestAHeldTargetOnlyHeals(t *testing.T) {
	annotations := map[string]string{v1alpha1.AnnotationHoldUntil: "2026-11-22T07:00:00Z", v1alpha1.AnnotationOwnedConditions: "EveryNodeReady"}
	o := &objects{}
	o.worker(t, "shoot--a", false, "")
	o.has("True", "HealthCheckSuccessful", allWell, annotations)
	forecast, items := tell(t, o, mcm)
	if line := items.Targets[0].Conditions[0].Lines()[0]; forecast.WouldFail != 0 || items.Writes != 0 || !strings.Contains(line, "and stays so: ") || !strings.Contains(line, "2026-11-22T07:00:00Z") {
		t.Errorf("%d would turn False and %d be written: %s", forecast.WouldFail, items.Writes, line)
	}
	o = &objects{}
	o.worker(t, "shoot--a", true, "")
	o.has("False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) mcm: down", annotations)
	if _, items = tell(t, o, mcm); items.Writes != 1 {
		t.Error("it wouldn't heal")
	}
}

func TestASuspendedRegistrationKeepsWhatItDecidesWithOthers(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", false, "")
	o.has("True", "HealthCheckSuccessful", allWell, claimed)
	forecast, items := tell(t, o, mcm, registered(t, "other", "suspendWhen: target.spec.type == 'aws'\n"+mcm))
	if c := items.Targets[0].Conditions[0]; c.Unchanged == "" || c.Changes || forecast.WouldFail != 0 {
		t.Errorf("the condition would become %+v", c)
	}
}

func TestAnotherVersionsChecksAreNotMade(t *testing.T) {
	v1 := registered(t, "other", strings.Replace(mcm, "v1alpha1", "v1", 1))
	o := &objects{}
	o.worker(t, "shoot--a", true, "")
	_, items := tell(t, o, mcm, v1)
	if c := items.Targets[0].Conditions[0]; c.Verdict.Status != "" || !slices.Equal(c.NotEvaluated, []string{"other/mcm"}) || !slices.Contains(c.Lines(), "  check other/mcm isn't made here: its registration names the kind in another version") {
		t.Errorf("the condition would become %+v", c)
	}
}

func TestWhatNobodyDecidesAnyMoreGoes(t *testing.T) {
	other := strings.Replace(mcm, "EveryNodeReady", "Other", 1)
	for name, c := range map[string]struct {
		spec        string
		stored      []*v1alpha1.HealthCheckRegistration
		message     string
		annotations map[string]string
		removed     bool
	}{
		"it is ours":                  {spec: other, message: allWell, annotations: claimed, removed: true},
		"somebody else wrote it":      {spec: other, message: "I did", annotations: claimed},
		"another decides it":          {spec: other, stored: []*v1alpha1.HealthCheckRegistration{registered(t, "o", mcm)}, message: allWell, annotations: claimed},
		"who observes removes none":   {spec: "mode: Observe\n" + other, message: allWell, annotations: claimed},
		"who observes keeps none":     {spec: other, stored: []*v1alpha1.HealthCheckRegistration{registered(t, "o", "mode: Observe\n"+mcm)}, message: allWell, annotations: claimed, removed: true},
		"nobody claims it":            {spec: other, message: allWell},
		"nobody does, it is asked to": {spec: "removeConditionTypes: [EveryNodeReady]\n" + other, message: allWell, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &objects{}
			o.worker(t, "shoot--a", true, "")
			o.has("True", "HealthCheckSuccessful", c.message, c.annotations)
			_, items := tell(t, o, c.spec, c.stored...)
			conditions := items.Targets[0].Conditions
			last := conditions[len(conditions)-1]
			if removed := last.Removed && last.Type == "EveryNodeReady" && last.Lines()[0] == "EveryNodeReady: True since 2026-11-22T05:00:00Z → removed"; removed != c.removed {
				t.Errorf("it tells %q", last.Lines())
			}
		})
	}
}

func TestAnOpenBreakerHoldsAllUntilItIsReset(t *testing.T) {
	stored := registered(t, "judged", mcm)
	stored.Status.Breaker = &v1alpha1.Breaker{ID: "20261122t050000z", OpenedAt: metav1.NewTime(now.Add(-time.Hour))}
	o := &objects{}
	o.worker(t, "shoot--a", false, "")
	o.wereWell()
	forecast, items := tell(t, o, mcm, stored)
	if c := items.Targets[0].Conditions[0]; forecast.WouldFail != 0 || forecast.WouldBeDoubted != 1 || c.Verdict.Status != health.Unknown {
		t.Errorf("%d would turn False, and the condition become %+v", forecast.WouldFail, c)
	}
	stored.Annotations = map[string]string{v1alpha1.AnnotationResetBreaker: "20261122t050000z"}
	if forecast, _ = tell(t, o, mcm, stored); forecast.WouldFail != 1 {
		t.Errorf("after the reset %d would turn False", forecast.WouldFail)
	}
}
