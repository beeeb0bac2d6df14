package condition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// A kernel is sick for half an hour, of which its set wants an hour; a kubelet recovered, whose set gives the taint up.
func TestATaintThatIsGivenUpIsKeptByASetOfItsKeyThatMatches(t *testing.T) {
	const early = "taintKey: example.com/k\nfor: 1h\nconditions: {KernelDeadlock: {status: true}}\neffect: "
	waiting := func(effect string) condition.Claimant { return claimant(t, "b", early+effect, active) }
	given := func(reason, effect string) string { return "Untaint a example.com/k " + effect + "> " + reason }
	kept := func(effect string, steps ...string) outcome {
		return outcome{taints: []string{"example.com/k:" + effect}, claims: []string{"b-uid example.com/k:" + effect},
			steps: append(steps, "Taint b example.com/k >"+effect+" ConditionsMatched")}
	}
	a := func(effect string, state lifecycle.State) condition.Claimant {
		return claimant(t, "a", "taintKey: example.com/k\nrecoverAfter: 0s\nconditions: {KubeletUnhealthy: {status: true}}\neffect: "+effect, state)
	}
	other := waiting("NoSchedule")
	other.Key, other.KeysDeclared = "example.com/other", []string{"example.com/other"}
	refused := waiting("NoSchedule")
	refused.State = held
	second := claimant(t, "c", early+"NoSchedule", active)
	for name, c := range map[string]struct {
		effect    string // that the node carries
		kernel    nodeOption
		claimants []condition.Claimant
		want      outcome
	}{
		"the conditions of the first recovered": {"NoSchedule", kernelSick, []condition.Claimant{a("NoSchedule", active), waiting("NoSchedule")},
			kept("NoSchedule", given("ConditionsRecovered", "NoSchedule"))},
		"the first was deleted": {"NoSchedule", kernelSick, []condition.Claimant{a("NoSchedule", withdrawn), waiting("NoSchedule")},
			kept("NoSchedule", given("PolicyDeletedOrObserving", "NoSchedule"))},
		"the second asks for less": {"NoSchedule", kernelSick, []condition.Claimant{a("NoSchedule", active), waiting("PreferNoSchedule")},
			kept("PreferNoSchedule", given("ConditionsRecovered", "NoSchedule"))},
		"it asks for more, which waits for its own `for`": {"PreferNoSchedule", kernelSick, []condition.Claimant{a("PreferNoSchedule", active), waiting("NoExecute")},
			kept("PreferNoSchedule", given("ConditionsRecovered", "PreferNoSchedule"))},
		"it evicts, which waits too": {"NoExecute", kernelSick, []condition.Claimant{a("NoExecute", active), waiting("NoExecute")},
			kept("NoSchedule", given("ConditionsRecovered", "NoExecute"))},
		"of two the older one keeps it": {"NoSchedule", kernelSick, []condition.Claimant{a("NoSchedule", active), waiting("NoSchedule"), second},
			kept("NoSchedule", given("ConditionsRecovered", "NoSchedule"))},
		"the second doesn't match": {"NoSchedule", kernelWell, []condition.Claimant{a("NoSchedule", active), waiting("NoSchedule")},
			outcome{steps: []string{given("ConditionsRecovered", "NoSchedule")}}},
		"it has another key": {"NoSchedule", kernelSick, []condition.Claimant{a("NoSchedule", active), other},
			outcome{steps: []string{given("ConditionsRecovered", "NoSchedule")}}},
		"a rule refuses it": {"NoSchedule", kernelSick, []condition.Claimant{a("NoSchedule", active), refused},
			outcome{steps: []string{given("ConditionsRecovered", "NoSchedule")}, holds: []string{"b-uid NotAdmitted"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := steady(newNode("n", kubeletWell, c.kernel, owning("a", "example.com/k", c.effect, ago(time.Hour))))
			plan := condition.PlanNode(planInput(n, c.claimants...))
			c.want.check(t, plan)
			if slices.ContainsFunc(plan.Steps, func(s condition.Step) bool { return !s.Due.IsZero() }) {
				t.Error("the step was due before it could be taken")
			}
		})
	}
	t.Run("while the first keeps it nothing is done", func(t *testing.T) {
		n := steady(newNode("n", kubeletSick, kernelSick, owning("a", "example.com/k", "NoSchedule", ago(time.Hour))))
		outcome{}.check(t, condition.PlanNode(planInput(n, a("NoSchedule", active), waiting("NoSchedule"))))
	})
	t.Run("a taint that somebody removed isn't put back for it", func(t *testing.T) {
		n := steady(newNode("n", kubeletWell, kernelSick, claiming("a", "example.com/k", "NoSchedule", ago(time.Hour))))
		outcome{steps: []string{"Repair a example.com/k NoSchedule> ConditionsRecovered"}}.check(t, condition.PlanNode(planInput(n, a("NoSchedule", active), waiting("NoSchedule"))))
	})
}

func TestATaintOfAKeyIsNeverMissingBetweenTwoSets(t *testing.T) {
	first := newSet(t, "a", noSchedule)
	second := newSet(t, "b", "effect: NoExecute\ntaintKey: example.com/k\nfor: 10m\nrecoverAfter: 0s\nconditions: {KernelDeadlock: {status: true}}")
	m := manage(t, calm("5", "5"), workers(10, kubeletSick, kernelWell), first, second)
	m.settle("w00")
	m.see("w00", reportsAt("KernelDeadlock", "True", noon, noon))
	taint := func() (effect string) {
		for _, t := range m.api.nodes["w00"].Spec.Taints {
			effect = string(t.Effect)
		}
		return effect
	}
	for minutes, want := range []string{"NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoSchedule", "NoExecute", "NoExecute"} {
		m.now = noon.Add(time.Duration(minutes) * time.Minute)
		m.see("w00", reportsAt("KernelDeadlock", "True", noon, m.now))
		if minutes == 3 {
			m.see("w00", reportsAt("KubeletUnhealthy", "False", m.now, m.now))
		}
		m.settle("w00")
		if got := taint(); got != want {
			t.Errorf("after %d minutes the taint is %q, want %q", minutes, got, want)
		}
	}
	m.see("w00", reportsAt("KernelDeadlock", "False", m.now, m.now))
	if m.settle("w00"); taint() != "" {
		t.Errorf("taint %q after recovery", taint())
	}
}
