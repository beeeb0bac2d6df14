package condition_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestUndoByHandTakesBackWhatTheRecordClaimsAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		node []nodeOption
		want outcome
		past int // entries of the history that are kept
	}{
		"nothing":         {want: outcome{}},
		"another's taint": {node: []nodeOption{tainted("example.com/k", "NoSchedule")}, want: outcome{}},
		"ours beside another's, though it matches": {
			node: []nodeOption{kubeletSick, tainted("example.com/other", "NoExecute"), owning("a", "example.com/k", "NoSchedule", ago(time.Hour))},
			want: outcome{taints: []string{"example.com/other:NoExecute"}, steps: []string{"Untaint a example.com/k NoSchedule> PolicyDeletedOrObserving"}},
		},
		"of two sets with one key": {
			node: []nodeOption{owning("a", "example.com/k", "NoExecute", ago(time.Hour)), claiming("b", "example.com/k", "NoSchedule", ago(time.Hour))},
			want: outcome{steps: []string{"Untaint a example.com/k NoExecute> PolicyDeletedOrObserving", "Untaint b example.com/k NoSchedule> PolicyDeletedOrObserving"}},
		},
		"held": {
			node: []nodeOption{heldUntil(later), owning("a", "example.com/k", "NoSchedule", ago(time.Hour))},
			want: outcome{steps: []string{"Untaint a example.com/k NoSchedule> PolicyDeletedOrObserving"}},
		},
		"a reserved key": {
			node: []nodeOption{owning("a", "node.kubernetes.io/not-ready", "NoExecute", ago(time.Hour))},
			want: outcome{taints: []string{"node.kubernetes.io/not-ready:NoExecute"}, steps: []string{"Repair a node.kubernetes.io/not-ready NoExecute> RecordNotOurs"}},
		},
		"a record whose taint someone removed": {
			node: []nodeOption{claiming("a", "example.com/k", "NoSchedule", ago(time.Hour))},
			want: outcome{steps: []string{"Repair a example.com/k NoSchedule> PolicyDeletedOrObserving"}},
		},
		"a record that can't be read": {node: []nodeOption{recorded("{"), tainted("example.com/k", "NoSchedule")}, want: outcome{}},
		"the past of a set that exists, and of one that doesn't": {
			node: []nodeOption{owning("a", "example.com/k", "NoExecute", ago(time.Minute)), remembering("a", ago(time.Minute)), remembering("gone", ago(time.Minute)), remembering("a", ago(2*time.Hour))},
			want: outcome{steps: []string{"Untaint a example.com/k NoExecute> PolicyDeletedOrObserving", "Repair   > PolicyDeletedOrObserving"}}, past: 1,
		},
		"nothing but the past of a set that exists": {node: []nodeOption{remembering("a", ago(time.Minute))}, want: outcome{}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := condition.Undo(condition.NewNode(newNode("n", c.node...), nil, noon), func(uid types.UID) bool { return uid == "a-uid" }, moment(noon))
			c.want.check(t, plan)
			if len(plan.Steps) > 0 && len(plan.Owned.History) != c.past {
				t.Errorf("remembers %v", plan.Owned.History)
			}
		})
	}
}

func TestATaintAfterAnUndoByHandIsAnotherAct(t *testing.T) {
	m := manage(t, calm("5", "5"), workers(3, kubeletSick), newSet(t, "a", noSchedule))
	first, _ := m.decide("w00")
	m.fleet.Failed("w00")
	m.settle("w00")
	m.now = noon.Add(time.Minute)
	m.see("w00", func(n *corev1.Node) {
		n.Spec.Taints = nil
		delete(n.Annotations, recordAnnotation)
	})
	again, _ := m.decide("w00")
	if len(again.Steps) != 1 || again.Steps[0].Trigger.Equal(first.Steps[0].Trigger) || !again.Steps[0].Trigger.Equal(m.now) {
		t.Errorf("the first is %+v, the second %+v", first.Steps, again.Steps)
	}
}
