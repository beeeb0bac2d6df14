package probe_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestWhatTakesLongIsLookedAtMoreSeldom(t *testing.T) {
	acts := []probe.Act{{Step: probe.StepScaleDown}}
	for name, tt := range map[string]struct {
		plan probe.Plan
		want time.Duration
	}{
		"something was written":                {probe.Plan{Acts: acts, Flow: probe.Flow{Started: start}}, 500 * time.Millisecond},
		"something was written late":           {probe.Plan{Acts: acts, Flow: probe.Flow{Started: start.Add(-time.Minute)}}, 500 * time.Millisecond},
		"the level began just now":             {probe.Plan{Flow: probe.Flow{Started: start}}, 500 * time.Millisecond},
		"the level began 4 s ago":              {probe.Plan{Flow: probe.Flow{Started: start.Add(-4 * time.Second)}}, 2 * time.Second},
		"the level began long ago":             {probe.Plan{Flow: probe.Flow{Started: start.Add(-time.Hour)}}, 5 * time.Second},
		"something is due before":              {probe.Plan{RequeueAt: start.Add(time.Second), Flow: probe.Flow{Started: start.Add(-time.Hour)}}, time.Second},
		"something is due later":               {probe.Plan{RequeueAt: start.Add(time.Hour), Flow: probe.Flow{Started: start}}, 500 * time.Millisecond},
		"no level has begun: all is withdrawn": {probe.Plan{}, 500 * time.Millisecond},
	} {
		if got := tt.plan.NextProgressCheck(start).Sub(start); got != tt.want {
			t.Errorf("%s: in %s, want %s", name, got, tt.want)
		}
	}
}

// An object that never takes its scale costs a bounded number of looks until its time is out, and its level ends in time.
func TestALevelThatWaitsIsSeldomLookedAtAndEndsInTime(t *testing.T) {
	c := single(t, "")
	in := probe.Scaling{Config: c, Want: probe.Down, DecidedAt: start, Now: start, ProtectionSince: start, Objects: []probe.Object{{Generation: 5, Replicas: 3, Current: 3}}}
	looks := 0
	for plan := probe.PlanScaling(in); plan.Flow.StoppedAt.IsZero(); plan = probe.PlanScaling(in) {
		if looks++; looks > 100 {
			t.Fatal("it never ends")
		}
		if len(plan.Acts) > 0 {
			in.Objects[0].Replicas, in.Objects[0].Record = 0, plan.Acts[0].Record
		}
		in.Flow, in.Now = plan.Flow, plan.NextProgressCheck(in.Now)
	}
	if took, most := in.Now.Sub(start), c.Dependents[0].ScaleDown.Timeout; took != most || looks > 15 {
		t.Errorf("it ends after %s and %d looks, want %s and at most 15", took, looks, most)
	}
}
