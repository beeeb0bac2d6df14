package condition_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestDefaultsOfASet(t *testing.T) {
	const rest = "\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
	tests := []struct {
		name                        string
		spec                        string
		hold, recover, stale, evict time.Duration
	}{
		{"NoSchedule holds for nothing", "effect: NoSchedule" + rest, 0, 0, 15 * time.Minute, 0},
		{"PreferNoSchedule holds for nothing", "effect: PreferNoSchedule" + rest, 0, 0, 15 * time.Minute, 0},
		{"NoExecute holds a minute both ways", "effect: NoExecute" + rest, time.Minute, time.Minute, 15 * time.Minute, 0},
		{"what is written counts", "effect: NoExecute\nfor: 5m\nrecoverAfter: 1h\nstaleAfter: 30s\nevictAfter: 10m" + rest, 5 * time.Minute, time.Hour, 30 * time.Second, 10 * time.Minute},
		{"zero is written too", "effect: NoExecute\nfor: 0s\nrecoverAfter: 0s" + rest, 0, 0, 15 * time.Minute, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSet(t, "a", tt.spec)
			if s.For != tt.hold || s.RecoverAfter != tt.recover || s.StaleAfter != tt.stale || s.EvictAfter != tt.evict {
				t.Errorf("for %s, recoverAfter %s, staleAfter %s, evictAfter %s; want %s, %s, %s, %s",
					s.For, s.RecoverAfter, s.StaleAfter, s.EvictAfter, tt.hold, tt.recover, tt.stale, tt.evict)
			}
		})
	}
}

func TestWhatASetIsMadeOf(t *testing.T) {
	cs := newConditionSet(t, "a", "type: Sick\neffect: NoSchedule\ntaintKey: example.com/k\nmode: Observe\nincludeControlPlane: true\nmaxNodes: 10%\nconditions: {B: {status: \"unknown\"}, A: {status: false}}")
	cs.Status.TaintKeys = []string{"example.com/old"}
	s, err := condition.NewSet(cs)
	if err != nil {
		t.Fatal(err)
	}
	if s.UID != "a-uid" || s.Name != "a" || s.Generation != 1 || s.Type != "Sick" || s.Key != "example.com/k" || s.Effect != "NoSchedule" ||
		!s.Observe || !s.IncludeControlPlane || s.MaxNodes.String() != "10%" {
		t.Errorf("set %+v", s)
	}
	if diff := cmp.Diff([]string{"A=False", "B=Unknown"}, texts(s.Members, func(m condition.Member) string { return m.Type + "=" + string(m.Status) })); diff != "" {
		t.Errorf("members differ:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"example.com/old", "example.com/k"}, s.KeysDeclared); diff != "" {
		t.Errorf("declared keys differ:\n%s", diff)
	}
}

func TestASpecThatCannotBeReadNamesItsField(t *testing.T) {
	const rest = "\ntaintKey: example.com/k\nconditions: {A: {status: true}}"
	tests := []struct{ name, spec, want string }{
		{"no effect", "taintKey: k\nconditions: {A: {status: true}}", "spec.effect"},
		{"an unknown effect", "effect: Evict" + rest, "spec.effect"},
		{"no conditions", "effect: NoSchedule\ntaintKey: k", "spec.conditions"},
		{"a status that is none", "effect: NoSchedule\ntaintKey: k\nconditions: {Ready: {status: maybe}}", "spec.conditions[Ready].status"},
		{"a duration that is none", "effect: NoSchedule\nfor: soon" + rest, "spec.for"},
		{"a negative duration", "effect: NoSchedule\nstaleAfter: -5m" + rest, "spec.staleAfter"},
		{"a selector operator that is none", "effect: NoSchedule\nnodeSelector: {matchExpressions: [{key: a, operator: Is}]}" + rest, "spec.nodeSelector"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := condition.NewSet(newConditionSet(t, "a", tt.spec)); err == nil || !strings.HasPrefix(err.Error(), tt.want+":") {
				t.Errorf("error %v, want one that names %s", err, tt.want)
			}
		})
	}
}
