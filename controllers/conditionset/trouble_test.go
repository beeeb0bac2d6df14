package conditionset

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func planFor(node string) condition.Plan {
	return condition.Plan{Node: &condition.Node{Name: node}, Steps: []condition.Step{{Set: "u", SetName: "kernel"}}}
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New("no"))

func TestTroubleEndsWithItsNodes(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*Trouble)
		nodes   int
		says    bool // forbidden, which stalls the set
	}{
		"a write is refused":                      {func(tr *Trouble) { tr.failed(planFor("a"), forbidden) }, 1, true},
		"someone else wrote first":                {func(tr *Trouble) { tr.failed(planFor("a"), actuate.ErrStale) }, 0, false},
		"it comes about after all":                {func(tr *Trouble) { tr.failed(planFor("a"), forbidden); tr.written(planFor("a")) }, 0, false},
		"nothing is to be done any more":          {func(tr *Trouble) { tr.failed(planFor("a"), forbidden); tr.settled("a") }, 0, false},
		"another node is settled":                 {func(tr *Trouble) { tr.failed(planFor("a"), forbidden); tr.settled("b") }, 1, true},
		"one node of several is refused for ever": {func(tr *Trouble) { tr.failed(planFor("a"), forbidden); tr.written(planFor("b")) }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			trouble := &Trouble{}
			c.happens(trouble)
			got := trouble.get("u")
			nodes := 0
			if got != nil {
				nodes = got.nodes
			}
			if nodes != c.nodes || got.forbidden() != c.says {
				t.Errorf("%d nodes in trouble, stalled %t", nodes, got.forbidden())
			}
		})
	}
}

func TestTheSetIsToldWhenItsTroubleBeginsAndEndsAndNotInBetween(t *testing.T) {
	told := 0
	trouble := &Trouble{hit: func(string) { told++ }}
	for range 3 {
		trouble.failed(planFor("a"), forbidden)
	}
	if told != 1 {
		t.Errorf("told %d times of one trouble", told)
	}
	if trouble.settled("a"); told != 2 {
		t.Errorf("not told of its end")
	}
}

func TestASetDeletedAndMadeAnewWhileTheWatchWasAwayEndsTheFormer(t *testing.T) {
	var gone, seen []types.UID
	h := handlers(func(cs *v1alpha1.ConditionSet) { seen = append(seen, cs.UID) }, func(cs *v1alpha1.ConditionSet) { gone = append(gone, cs.UID) })
	set := func(uid types.UID) *v1alpha1.ConditionSet {
		return &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "kernel", UID: uid}}
	}
	h.OnUpdate(set("former"), set("new"))
	h.OnUpdate(set("new"), set("new"))
	if len(gone) != 1 || gone[0] != "former" || len(seen) != 2 {
		t.Errorf("gone %v, seen %v", gone, seen)
	}
}
