package condition_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestWhatAStoredSetMayDo(t *testing.T) {
	const ready = "finalizers: [autohealer.resourcestack.com/undo]"
	const keys = "status: {taintKeys: [example.com/a]}"
	spec := func(more string) string {
		return "spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}" + more + "}"
	}
	for name, c := range map[string]struct {
		text     string
		admitted bool
		want     condition.Standing
	}{
		"admitted, recorded":     {"{metadata: {" + ready + "}, " + spec("") + ", " + keys + "}", true, condition.Active},
		"refused":                {"{metadata: {" + ready + "}, " + spec("") + ", " + keys + "}", false, condition.Held},
		"observing":              {"{metadata: {" + ready + "}, " + spec(", mode: Observe") + ", " + keys + "}", true, condition.Withdrawn},
		"being deleted":          {"{metadata: {deletionTimestamp: 2026-11-21T12:00:00Z, " + ready + "}, " + spec("") + ", " + keys + "}", true, condition.Withdrawn},
		"without a finalizer":    {"{" + spec("") + ", " + keys + "}", true, condition.Frozen},
		"without a recorded key": {"{metadata: {" + ready + "}, " + spec("") + "}", true, condition.Frozen},
		"unreadable":             {"{metadata: {" + ready + "}, " + spec(", for: soon") + ", " + keys + "}", true, condition.Frozen},
	} {
		t.Run(name, func(t *testing.T) {
			cs := &v1alpha1.ConditionSet{}
			if err := yaml.Unmarshal([]byte(c.text), cs); err != nil {
				t.Fatal(err)
			}
			_, err := condition.NewSet(cs)
			if got := condition.StandingOf(cs, err == nil, c.admitted); got != c.want {
				t.Errorf("standing %v, want %v", got, c.want)
			}
		})
	}
}
