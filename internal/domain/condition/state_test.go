package condition_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
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
		want     lifecycle.State
	}{
		"admitted, recorded":     {"{metadata: {" + ready + "}, " + spec("") + ", " + keys + "}", true, lifecycle.Active},
		"refused":                {"{metadata: {" + ready + "}, " + spec("") + ", " + keys + "}", false, lifecycle.Refused},
		"observing":              {"{metadata: {" + ready + "}, " + spec(", mode: Observe") + ", " + keys + "}", true, lifecycle.Observing},
		"being deleted":          {"{metadata: {deletionTimestamp: 2026-11-21T12:00:00Z, " + ready + "}, " + spec("") + ", " + keys + "}", true, lifecycle.Deleted},
		"without a finalizer":    {"{" + spec("") + ", " + keys + "}", true, lifecycle.Unrecorded},
		"without a recorded key": {"{metadata: {" + ready + "}, " + spec("") + "}", true, lifecycle.Unrecorded},
		"unreadable":             {"{metadata: {" + ready + "}, " + spec(", for: soon") + ", " + keys + "}", true, lifecycle.Unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			cs := &v1alpha1.ConditionSet{}
			if err := yaml.Unmarshal([]byte(c.text), cs); err != nil {
				t.Fatal(err)
			}
			_, err := condition.NewSet(cs)
			if got := condition.StateOf(cs, err == nil, c.admitted); got != c.want {
				t.Errorf("state %v, want %v", got, c.want)
			}
		})
	}
}
