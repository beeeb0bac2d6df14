package condition_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

const (
	noSchedule = "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
	noExecute  = "effect: NoExecute\ntaintKey: example.com/k\nfor: 0s\nrecoverAfter: 0s\nconditions: {KernelDeadlock: {status: true}}"
	otherKey   = "effect: NoSchedule\ntaintKey: example.com/other\nconditions: {KubeletUnhealthy: {status: true}}"
	evictLater = "effect: NoExecute\ntaintKey: example.com/k\nfor: 0s\nrecoverAfter: 0s\nevictAfter: 10m\nconditions: {KernelDeadlock: {status: true}}"
)

var (
	kubeletSick = reports("KubeletUnhealthy", "True", ago(30*time.Minute))
	kubeletWell = reports("KubeletUnhealthy", "False", ago(30*time.Minute))
	kernelSick  = reports("KernelDeadlock", "True", ago(30*time.Minute))
	kernelWell  = reports("KernelDeadlock", "False", ago(30*time.Minute))
	// kubeletSilent is True by a reporter that has been silent for hours.
	kubeletSilent = reportsAt("KubeletUnhealthy", "True", ago(9*time.Hour), ago(9*time.Hour))
)

// claimant is a set of that name with that state.
func claimant(t testing.TB, name, spec string, state lifecycle.State) condition.Claimant {
	return condition.Claimant{Set: newSet(t, name, spec), State: state}
}

// planInput has open limits, evidence of no system pods, and knows every claimant's key as declared.
func planInput(n *condition.Node, claimants ...condition.Claimant) condition.Input {
	return condition.Input{
		Node: n, Claimants: claimants, At: moment(noon), Precedence: "Key", Evidence: &condition.Evidence{},
		Declared: func(key string) bool {
			return slices.ContainsFunc(claimants, func(c condition.Claimant) bool { return slices.Contains(c.KeysDeclared, key) })
		},
		Withdrawn: func(types.UID) bool { return false },
	}
}

// outcome is a plan in words.
type outcome struct {
	taints, claims, steps, holds []string
}

func outcomeOf(p condition.Plan) outcome {
	o := outcome{steps: texts(p.Steps, stepText), holds: texts(p.Holds, holdText)}
	if len(p.Steps) > 0 {
		o.taints, o.claims = texts(p.Taints, taintText), texts(p.Owned.Taints, claimText)
		slices.Sort(o.claims)
	}
	return o
}

func (want outcome) check(t *testing.T, got condition.Plan) {
	t.Helper()
	if diff := cmp.Diff(want, outcomeOf(got), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("plan differs (- want, + got):\n%s", diff)
	}
}

const (
	frozen    = lifecycle.NotJudged
	held      = lifecycle.Refused
	active    = lifecycle.Active
	withdrawn = lifecycle.Deleted
)

func TestWhatASetMayDoInEachState(t *testing.T) {
	matching := func() *corev1.Node { return newNode("n", kubeletSick) }
	ours := func(o ...nodeOption) *corev1.Node {
		return newNode("n", append(o, owning("a", "example.com/k", "NoSchedule", ago(time.Hour)))...)
	}
	taintedNow := outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}
	undone := func(reason string) outcome {
		return outcome{steps: []string{"Untaint a example.com/k NoSchedule> " + reason}}
	}
	elsewhere := "nodeSelector: {matchLabels: {pool: b}}\n" + noSchedule
	tests := []struct {
		name  string
		state lifecycle.State
		spec  string
		node  *corev1.Node
		want  outcome
	}{
		{"active: a node that matches is tainted", active, noSchedule, matching(), taintedNow},
		{"active: what stopped matching is undone", active, noSchedule, ours(kubeletWell), undone("ConditionsRecovered")},
		{"active: what matches stays", active, noSchedule, ours(kubeletSick), outcome{}},
		{"active: doubt keeps the taint", active, noSchedule, ours(kubeletSilent), outcome{}},
		{"active: doubt gives no taint", active, noSchedule, newNode("n", kubeletSilent), outcome{}},
		{"active: a node no longer selected is undone", active, elsewhere, ours(kubeletSick), undone("NodeNoLongerSelected")},
		{"held: no new taint", held, noSchedule, matching(), outcome{holds: []string{"a-uid NotAdmitted"}}},
		{"held: what stopped matching is undone", held, noSchedule, ours(kubeletWell), undone("ConditionsRecovered")},
		{"held: what matches stays", held, noSchedule, ours(kubeletSick), outcome{}},
		{"held: a node no longer selected is undone", held, elsewhere, ours(kubeletSick), undone("NodeNoLongerSelected")},
		{"frozen: no new taint", frozen, noSchedule, matching(), outcome{}},
		{"frozen: what stopped matching stays", frozen, noSchedule, ours(kubeletWell), outcome{}},
		{"frozen: a node no longer selected stays", frozen, elsewhere, ours(kubeletSick), outcome{}},
		{"withdrawn: no new taint", withdrawn, noSchedule, matching(), outcome{}},
		{"withdrawn: everything is undone, though it matches", withdrawn, noSchedule, ours(kubeletSick), undone("PolicyDeletedOrObserving")},
		{"withdrawn: everything is undone, though in doubt", withdrawn, noSchedule, ours(kubeletSilent), undone("PolicyDeletedOrObserving")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.check(t, condition.PlanNode(planInput(steady(tt.node), claimant(t, "a", tt.spec, tt.state))))
		})
	}
}

func TestTheHighestEffectOfAKeyWinsInOneWrite(t *testing.T) {
	const prefer = "effect: PreferNoSchedule\ntaintKey: example.com/k\nconditions: {NTPProblem: {status: true}}"
	a, b := claimant(t, "a", noSchedule, active), claimant(t, "b", noExecute, active)
	tests := []struct {
		name      string
		node      *corev1.Node
		claimants []condition.Claimant
		want      outcome
	}{
		{"two sets at once give one taint", newNode("n", kubeletSick, kernelSick), []condition.Claimant{a, b}, outcome{
			taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoSchedule", "b-uid example.com/k:NoExecute"},
			steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched", "Taint b example.com/k >NoExecute ConditionsMatched"}}},
		{"the second set escalates, without a gap", newNode("n", kubeletSick, kernelSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), []condition.Claimant{a, b}, outcome{
			taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoSchedule", "b-uid example.com/k:NoExecute"},
			steps: []string{"Taint b example.com/k >NoExecute ConditionsMatched"}}},
		{"the higher one recovers, the lower one stays",
			newNode("n", kubeletSick, kernelWell, owning("b", "example.com/k", "NoExecute", ago(time.Hour)), claiming("a", "example.com/k", "NoSchedule", ago(time.Hour))), []condition.Claimant{a, b}, outcome{
				taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"},
				steps: []string{"Untaint b example.com/k NoExecute> ConditionsRecovered"}}},
		{"the lower one recovers, the higher one stays",
			newNode("n", kubeletWell, kernelSick, owning("b", "example.com/k", "NoExecute", ago(time.Hour)), claiming("a", "example.com/k", "NoSchedule", ago(time.Hour))), []condition.Claimant{a, b}, outcome{
				taints: []string{"example.com/k:NoExecute"}, claims: []string{"b-uid example.com/k:NoExecute"},
				steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
		{"one takes over in the write in which the other leaves",
			newNode("n", kubeletSick, kernelWell, owning("b", "example.com/k", "NoExecute", ago(time.Hour))), []condition.Claimant{a, b}, outcome{
				taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"},
				steps: []string{"Untaint b example.com/k NoExecute> ConditionsRecovered", "Taint a example.com/k >NoSchedule ConditionsMatched"}}},
		{"PreferNoSchedule is the lowest",
			newNode("n", kubeletSick, reports("NTPProblem", "True", ago(time.Hour)), owning("c", "example.com/k", "PreferNoSchedule", ago(time.Hour))), []condition.Claimant{a, claimant(t, "c", prefer, active)}, outcome{
				taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule", "c-uid example.com/k:PreferNoSchedule"},
				steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}},
		{"different keys all apply", newNode("n", kubeletSick, kernelSick), []condition.Claimant{claimant(t, "o", otherKey, active), b}, outcome{
			taints: []string{"example.com/other:NoSchedule", "example.com/k:NoExecute"}, claims: []string{"b-uid example.com/k:NoExecute", "o-uid example.com/other:NoSchedule"},
			steps: []string{"Taint o example.com/other >NoSchedule ConditionsMatched", "Taint b example.com/k >NoExecute ConditionsMatched"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.check(t, condition.PlanNode(planInput(steady(tt.node), tt.claimants...)))
		})
	}
}

func TestPerNodeOnlyTheHighestEffectApplies(t *testing.T) {
	o, b := claimant(t, "o", otherKey, active), claimant(t, "b", noExecute, active)
	both, outranked := newNode("n", kubeletSick, kernelSick), []string{"o-uid Outranked"}
	tests := []struct {
		name      string
		node      *corev1.Node
		claimants []condition.Claimant
		want      outcome
	}{
		{"the lower set is left out", both, []condition.Claimant{o, b}, outcome{
			taints: []string{"example.com/k:NoExecute"}, claims: []string{"b-uid example.com/k:NoExecute"}, steps: []string{"Taint b example.com/k >NoExecute ConditionsMatched"}, holds: outranked}},
		{"a lower taint yields to a higher one in the same write", newNode("n", kubeletSick, kernelSick, owning("o", "example.com/other", "NoSchedule", ago(time.Hour))), []condition.Claimant{o, b}, outcome{
			taints: []string{"example.com/k:NoExecute"}, claims: []string{"b-uid example.com/k:NoExecute"},
			steps: []string{"Taint b example.com/k >NoExecute ConditionsMatched", "Untaint o example.com/other NoSchedule> EffectChanged"}, holds: outranked}},
		{"the lower set waits without a write", newNode("n", kubeletSick, kernelSick, owning("b", "example.com/k", "NoExecute", ago(time.Hour))), []condition.Claimant{o, b}, outcome{holds: outranked}},
		{"the lower set takes over in one write", newNode("n", kubeletSick, kernelWell, owning("b", "example.com/k", "NoExecute", ago(time.Hour))), []condition.Claimant{o, b}, outcome{
			taints: []string{"example.com/other:NoSchedule"}, claims: []string{"o-uid example.com/other:NoSchedule"},
			steps: []string{"Untaint b example.com/k NoExecute> ConditionsRecovered", "Taint o example.com/other >NoSchedule ConditionsMatched"}}},
		{"equal effects both apply", newNode("n", kubeletSick), []condition.Claimant{o, claimant(t, "a", noSchedule, active)}, outcome{
			taints: []string{"example.com/other:NoSchedule", "example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule", "o-uid example.com/other:NoSchedule"},
			steps: []string{"Taint o example.com/other >NoSchedule ConditionsMatched", "Taint a example.com/k >NoSchedule ConditionsMatched"}}},
		{"a frozen set's taint isn't touched", newNode("n", kubeletSick, kernelSick, owning("o", "example.com/other", "NoSchedule", ago(time.Hour))), []condition.Claimant{claimant(t, "o", otherKey, frozen), b}, outcome{
			taints: []string{"example.com/other:NoSchedule", "example.com/k:NoExecute"}, claims: []string{"b-uid example.com/k:NoExecute", "o-uid example.com/other:NoSchedule"},
			steps: []string{"Taint b example.com/k >NoExecute ConditionsMatched"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := planInput(steady(tt.node), tt.claimants...)
			in.Precedence = "Node"
			tt.want.check(t, condition.PlanNode(in))
		})
	}
}

func TestASetLeftOutByNodePrecedenceDoesNotCountAsTainting(t *testing.T) {
	lower := claimant(t, "a", "effect: NoExecute\ntaintKey: example.com/k\nfor: 0s\nevictAfter: 10m\nconditions: {KubeletUnhealthy: {status: true}}", active)
	higher := claimant(t, "b", "effect: NoExecute\ntaintKey: example.com/other\nfor: 0s\nconditions: {KernelDeadlock: {status: true}}", active)
	in := planInput(steady(newNode("n", kubeletSick, kernelSick)), lower, higher)
	in.Precedence = "Node"
	plan := condition.PlanNode(in)
	if len(plan.Owned.History) != 1 || plan.Owned.History[0].Set != "b-uid" {
		t.Errorf("history %+v, want only the set that tainted", plan.Owned.History)
	}
	if want := "ConditionSet b asks for example.com/other:NoExecute on the node, and conditionSetPrecedence: Node of a Guardrail leaves only the highest effect"; len(plan.Holds) != 1 ||
		plan.Holds[0].Set != "a-uid" || plan.Holds[0].Reason != "Outranked" || plan.Holds[0].Message != want {
		t.Errorf("holds %+v, want that a is told by which it is outranked", plan.Holds)
	}
}

func TestOnlyOurOwnTaintsAreTouched(t *testing.T) {
	a := claimant(t, "a", noSchedule, active)
	declared := func(keys ...string) func(string) bool {
		return func(key string) bool { return key == "example.com/k" || slices.Contains(keys, key) }
	}
	tests := []struct {
		name     string
		node     *corev1.Node
		declared func(string) bool
		want     outcome
	}{
		{"someone else's same key and effect isn't adopted", newNode("n", kubeletSick, tainted("example.com/k", "NoSchedule")), declared(),
			outcome{holds: []string{"a-uid ForeignTaint"}}},
		{"someone else's same key and effect isn't removed", newNode("n", kubeletWell, tainted("example.com/k", "NoSchedule")), declared(), outcome{}},
		{"someone else's same key with another effect stays beside ours", newNode("n", kubeletSick, tainted("example.com/k", "NoExecute")), declared(), outcome{
			taints: []string{"example.com/k:NoExecute", "example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}},
		{"undoing leaves the same key with another effect", newNode("n", kubeletWell, tainted("example.com/k", "NoExecute"), owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), declared(), outcome{
			taints: []string{"example.com/k:NoExecute"}, steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
		{"the order of foreign taints is kept", newNode("n", kubeletWell, tainted("x", "NoSchedule"), owning("a", "example.com/k", "NoSchedule", ago(time.Hour)), tainted("y", "NoExecute"), tainted("b", "NoSchedule")), declared(), outcome{
			taints: []string{"x:NoSchedule", "y:NoExecute", "b:NoSchedule"}, steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
		{"a new taint goes last", newNode("n", kubeletSick, tainted("z", "NoSchedule"), tainted("b", "NoSchedule")), declared(), outcome{
			taints: []string{"z:NoSchedule", "b:NoSchedule", "example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}},
		{"a forged record of a reserved key strips nothing", newNode("n", kubeletWell, owning("a", "node.kubernetes.io/unschedulable", "NoSchedule", ago(time.Hour))), declared("node.kubernetes.io/unschedulable"), outcome{
			taints: []string{"node.kubernetes.io/unschedulable:NoSchedule"}, steps: []string{"Repair a node.kubernetes.io/unschedulable NoSchedule> RecordNotOurs"}}},
		{"a forged record of a key that no set declared strips nothing", newNode("n", kubeletWell, owning("a", "corp.example/dedicated", "NoSchedule", ago(time.Hour))), declared(), outcome{
			taints: []string{"corp.example/dedicated:NoSchedule"}, steps: []string{"Repair a corp.example/dedicated NoSchedule> RecordNotOurs"}}},
		{"a forged record is cleaned while the real one stays", newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour)), owning("a", "corp.example/dedicated", "NoSchedule", ago(time.Hour))), declared(), outcome{
			taints: []string{"example.com/k:NoSchedule", "corp.example/dedicated:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Repair a corp.example/dedicated NoSchedule> RecordNotOurs"}}},
		{"a record of another effect than the node's taint removes nothing", newNode("n", kubeletWell, tainted("example.com/k", "NoExecute"), claiming("a", "example.com/k", "NoSchedule", ago(time.Hour))), declared(), outcome{
			taints: []string{"example.com/k:NoExecute"}, steps: []string{"Repair a example.com/k NoSchedule> ConditionsRecovered"}}},
		{"a taint with a value that someone gave it is still ours to remove", newNode("n", kubeletWell, owning("a", "example.com/k", "NoSchedule", ago(time.Hour)), func(n *corev1.Node) { n.Spec.Taints[0].Value = "x" }), declared(), outcome{
			steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := planInput(steady(tt.node), a)
			in.Declared = tt.declared
			tt.want.check(t, condition.PlanNode(in))
		})
	}
}

func TestSomeoneElsesNoExecuteLeavesUsNoSchedule(t *testing.T) {
	want := outcome{taints: []string{"example.com/k:NoExecute", "example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, holds: []string{"a-uid ForeignTaint"}}
	theirs := tainted("example.com/k", "NoExecute")
	in := planInput(steady(newNode("n", kernelSick, theirs)), claimant(t, "a", noExecute, active))
	in.Evidence = nil // no need to read the pods
	want.steps = []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}
	want.check(t, condition.PlanNode(in))
	in = planInput(steady(newNode("n", kernelSick, theirs, claiming("a", "example.com/k", "NoSchedule", ago(time.Hour)))), claimant(t, "a", evictLater, active))
	want.steps, want.holds = []string{"Taint a example.com/k >NoSchedule TaintWasRemoved"}, nil // evictAfter counts anew
	want.check(t, condition.PlanNode(in))
}

func TestALoweredEffectThatIsSomeoneElsesTaintIsGivenUp(t *testing.T) {
	n := newNode("n", kubeletSick, kernelWell, tainted("example.com/k", "NoSchedule"), owning("b", "example.com/k", "NoExecute", ago(time.Hour)), claiming("a", "example.com/k", "NoSchedule", ago(time.Hour)))
	plan := condition.PlanNode(planInput(steady(n), claimant(t, "a", noSchedule, active), claimant(t, "b", noExecute, active)))
	outcome{taints: []string{"example.com/k:NoSchedule"}, steps: []string{"Untaint b example.com/k NoExecute> ConditionsRecovered"}}.check(t, plan)
}

func TestAChangedSpec(t *testing.T) {
	tests := []struct {
		name  string
		spec  string
		state lifecycle.State
		node  *corev1.Node
		want  outcome
	}{
		{"a changed key moves the taint in one write", "effect: NoSchedule\ntaintKey: example.com/new\nconditions: {KubeletUnhealthy: {status: true}}", active,
			newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), outcome{
				taints: []string{"example.com/new:NoSchedule"}, claims: []string{"a-uid example.com/new:NoSchedule"},
				steps: []string{"Untaint a example.com/k NoSchedule> TaintKeyChanged", "Taint a example.com/new >NoSchedule ConditionsMatched"}}},
		{"a changed key of a refused set undoes the old one", "effect: NoSchedule\ntaintKey: example.com/new\nconditions: {KubeletUnhealthy: {status: true}}", held,
			newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), outcome{
				steps: []string{"Untaint a example.com/k NoSchedule> TaintKeyChanged"}, holds: []string{"a-uid NotAdmitted"}}},
		{"a lowered effect", "effect: PreferNoSchedule\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}", active,
			newNode("n", kubeletSick, owning("a", "example.com/k", "NoExecute", ago(time.Hour))), outcome{
				taints: []string{"example.com/k:PreferNoSchedule"}, claims: []string{"a-uid example.com/k:PreferNoSchedule"}, steps: []string{"Deescalate a example.com/k NoExecute>PreferNoSchedule EffectChanged"}}},
		{"a raised effect", "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}", active,
			newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), outcome{
				taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"}, steps: []string{"Escalate a example.com/k NoSchedule>NoExecute EffectChanged"}}},
		{"a raised effect of a refused set stays low", "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}", held,
			newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), outcome{holds: []string{"a-uid NotAdmitted"}}},
		{"a raised effect waits for its own hold", "effect: NoExecute\ntaintKey: example.com/k\nfor: 45m\nconditions: {KubeletUnhealthy: {status: true}}", active,
			newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(20*time.Minute))), outcome{}},
		{"a changed selector", "nodeSelector: {matchLabels: {pool: b}}\n" + noSchedule, active,
			newNode("n", kubeletSick, labelled("pool", "a"), owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), outcome{
				steps: []string{"Untaint a example.com/k NoSchedule> NodeNoLongerSelected"}}},
		{"changed conditions", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {KernelDeadlock: {status: true}}", active,
			newNode("n", kubeletSick, kernelWell, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), outcome{
				steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changed := claimant(t, "a", tt.spec, tt.state)
			changed.Generation++
			in := planInput(steady(tt.node), changed)
			in.Declared = func(string) bool { return true }
			tt.want.check(t, condition.PlanNode(in))
		})
	}
}

func TestALoweredEffectForgetsThatItEvicted(t *testing.T) {
	plan := condition.PlanNode(planInput(steady(newNode("n", kubeletSick, owning("a", "example.com/k", "NoExecute", ago(time.Hour)))), claimant(t, "a", noSchedule, active)))
	if got := plan.Owned.Taints[0]; got.Effect != "NoSchedule" || got.EvictSince != nil {
		t.Errorf("claim %+v; with evictAfter it would evict at once when it is raised again", got)
	}
}

func TestAnEvictionThatWasHeldBackSaysSo(t *testing.T) {
	in := planInput(steady(newNode("n", kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour)))),
		claimant(t, "a", "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}", active))
	outcome{taints: []string{"example.com/k:NoExecute"}, claims: []string{"a-uid example.com/k:NoExecute"},
		steps: []string{"Escalate a example.com/k NoSchedule>NoExecute NoLongerHeld"}}.check(t, condition.PlanNode(in))
}

func TestAChangedKeyIsNotANewNodeForTheOwnCap(t *testing.T) {
	in := planInput(steady(newNode("n", kubeletSick, owning("a", "example.com/old", "NoSchedule", ago(time.Hour)))), claimant(t, "a", "maxNodes: 1\n"+noSchedule, active))
	in.Declared = func(string) bool { return true }
	in.Headroom = full(in.Headroom, condition.CapMaxNodes, "MaxNodesReached")
	outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"},
		steps: []string{"Untaint a example.com/old NoSchedule> TaintKeyChanged", "Taint a example.com/k >NoSchedule ConditionsMatched"}}.check(t, condition.PlanNode(in))
}

func TestADeletingNodeIsOnlyUndone(t *testing.T) {
	tests := []struct {
		name string
		node *corev1.Node
		set  condition.Claimant
		want outcome
	}{
		{"it gets no new taint", newNode("n", deleting, kubeletSick), claimant(t, "a", noSchedule, active), outcome{}},
		{"its taint isn't raised", newNode("n", deleting, kernelSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), claimant(t, "a", noExecute, active), outcome{}},
		{"its taint stays while it matches", newNode("n", deleting, kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), claimant(t, "a", noSchedule, active), outcome{}},
		{"a withdrawn set leaves it", newNode("n", deleting, kubeletSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), claimant(t, "a", noSchedule, withdrawn),
			outcome{steps: []string{"Untaint a example.com/k NoSchedule> PolicyDeletedOrObserving"}}},
		{"what recovered leaves it", newNode("n", deleting, kubeletWell, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))), claimant(t, "a", noSchedule, active),
			outcome{steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.check(t, condition.PlanNode(planInput(steady(tt.node), tt.set)))
		})
	}
}

func TestATaintGoesWithTheConditionsThatItWasFor(t *testing.T) {
	a := claimant(t, "a", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {NTPProblem: {status: true}}", active)
	owned := owning("a", "example.com/k", "NoSchedule", ago(time.Hour)) // by generation 1
	vanished := watched(stage{ago(time.Minute), newNode("n", reports("NTPProblem", "True", ago(time.Hour)), owned)}, stage{noon, newNode("n", owned)})
	for name, tt := range map[string]struct {
		generation int64
		node       *condition.Node
		steps      string
	}{
		"the set asks for what the node never reported": {2, steady(newNode("n", kubeletSick, owned)), "Untaint a example.com/k NoSchedule> ConditionsChanged"},
		"it asked for that when it tainted the node":    {1, steady(newNode("n", kubeletSick, owned)), ""},
		"the condition went while we looked":            {2, vanished, ""},
	} {
		t.Run(name, func(t *testing.T) {
			of := *a.Set
			of.Generation = tt.generation
			c := a
			c.Set = &of
			if got := strings.Join(texts(condition.PlanNode(planInput(tt.node, c)).Steps, stepText), ", "); got != tt.steps {
				t.Errorf("steps %q, want %q", got, tt.steps)
			}
		})
	}
}
