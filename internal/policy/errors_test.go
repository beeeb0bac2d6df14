package policy

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	kernel    = Ref{UID: "u", NamespacedName: types.NamespacedName{Name: "kernel"}}
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New("no"))
)

func TestTroubleEndsWithItsTargets(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*ErrorTracker)
		targets int
		says    bool // forbidden, which stalls the policy
	}{
		"a write is refused":                        {func(tr *ErrorTracker) { tr.RecordFailure("a", forbidden, kernel) }, 1, true},
		"it comes about after all":                  {func(tr *ErrorTracker) { tr.RecordFailure("a", forbidden, kernel); tr.RecordSuccess("a", kernel) }, 0, false},
		"nothing is to be done any more":            {func(tr *ErrorTracker) { tr.RecordFailure("a", forbidden, kernel); tr.Clear("a") }, 0, false},
		"another target is settled":                 {func(tr *ErrorTracker) { tr.RecordFailure("a", forbidden, kernel); tr.Clear("b") }, 1, true},
		"one target of several is refused for ever": {func(tr *ErrorTracker) { tr.RecordFailure("a", forbidden, kernel); tr.RecordSuccess("b", kernel) }, 1, false},
		"one of its writes is refused, and another not": {func(tr *ErrorTracker) {
			tr.RecordAttempts("a", Attempts{Written: []Ref{kernel}, Failed: map[Ref]error{kernel: forbidden}, Complete: true})
		}, 1, false},
		"and it is all that is left": {func(tr *ErrorTracker) {
			tr.RecordAttempts("a", Attempts{Written: []Ref{kernel}, Failed: map[Ref]error{kernel: forbidden}, Complete: true})
			tr.RecordAttempts("a", Attempts{Failed: map[Ref]error{kernel: forbidden}, Complete: true})
		}, 1, false},
		"another policy's write is refused": {func(tr *ErrorTracker) {
			tr.RecordFailure("a", forbidden, kernel)
			tr.RecordAttempts("a", Attempts{Failed: map[Ref]error{{UID: "v"}: forbidden}, Complete: true})
		}, 0, false},
		"another policy's write is refused before it is tried": {func(tr *ErrorTracker) {
			tr.RecordFailure("a", forbidden, kernel)
			tr.RecordAttempts("a", Attempts{Failed: map[Ref]error{{UID: "v"}: forbidden}})
		}, 1, true},
		"the policy is gone": {func(tr *ErrorTracker) { tr.RecordFailure("a", forbidden, kernel); tr.Forget("u") }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			troubles := &ErrorTracker{}
			c.happens(troubles)
			got := troubles.Get("u")
			targets := 0
			if got != nil {
				targets = got.Targets
			}
			if targets != c.targets || got.Forbidden() != c.says {
				t.Errorf("%d targets in trouble, stalled %t", targets, got.Forbidden())
			}
		})
	}
}

func TestThePolicyIsToldWhenItsTroubleBeginsAndEndsAndNotInBetween(t *testing.T) {
	told := 0
	troubles := &ErrorTracker{OnChange: func(policy types.NamespacedName) {
		if told++; policy.Name != "kernel" {
			t.Errorf("told of %s", policy)
		}
	}}
	for range 3 {
		troubles.RecordFailure("a", forbidden, kernel)
	}
	if told != 1 {
		t.Errorf("told %d times of one trouble", told)
	}
	if troubles.Clear("a"); told != 2 {
		t.Errorf("not told of its end")
	}
}
