package conditionset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// watched is an observer of stored sets by these names, as a replica that was never leader has it.
func watched(t *testing.T, await bool, names ...string) (*Observer, *guard.Guard) {
	t.Helper()
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	g, err := guard.New(guard.Options{AwaitGuardrails: await, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	facts := &kube.Facts{Fleet: condition.NewFleet(limit.Builtin()), Clock: clock, Server: &kube.ServerClock{Clock: clock}}
	o := NewObserver(nil, g, facts, &kube.Rejections{})
	for _, name := range names {
		o.policies.Seen(t.Context(), newSet(name))
	}
	return o, g
}

func newSet(name string) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec: v1alpha1.ConditionSetSpec{
			Type: "Broken", Effect: "NoSchedule", TaintKey: "example.com/" + name,
			Conditions: map[string]v1alpha1.MemberCondition{"KernelDeadlock": {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
		},
	}
}

func ruleOver(kind string) []*v1alpha1.Guardrail {
	return []*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "org", UID: "o", Generation: 1}, Spec: v1alpha1.GuardrailSpec{
		Rules: []v1alpha1.GuardrailRule{{Name: "r", Kinds: []string{kind}, Expression: "object.metadata.name != 'nobody'"}},
	}}}
}

func TestASetWhoseRulesChangedIsNotActedFor(t *testing.T) {
	o, g := watched(t, false, "a")
	now := o.Facts.Clock.Now()
	if j := judged(t, o, "a"); !admits(j, now, g.RuleSetHash("ConditionSet")) {
		t.Fatalf("the rules refuse it: %s", j.Verdict.Message())
	}
	g.SetGuardrails(ruleOver("ConditionSet"))
	if admits(judged(t, o, "a"), now, g.RuleSetHash("ConditionSet")) {
		t.Error("until it is judged again one may still act for it")
	}
	o.policies.Judge(t.Context(), types.NamespacedName{Name: "a"})
	if !admits(judged(t, o, "a"), now, g.RuleSetHash("ConditionSet")) {
		t.Error("one may not act for it though the new rules admit it")
	}
}

func judged(t *testing.T, o *Observer, name string) storedSet {
	t.Helper()
	j, ok := o.policies.Get(types.NamespacedName{Name: name})
	if !ok {
		t.Fatalf("%s isn't judged", name)
	}
	return j
}

func TestNothingIsDoneBeforeGuardrailsAreRead(t *testing.T) {
	o, g := watched(t, true, "a")
	if _, known := o.policies.PausedBy(); known {
		t.Error("it says who pauses")
	}
	if admits(judged(t, o, "a"), o.Facts.Clock.Now(), g.RuleSetHash("ConditionSet")) {
		t.Error("one may act for a set")
	}
	g.SetGuardrails(nil)
	if by, known := o.policies.PausedBy(); by.By != "" || !known {
		t.Errorf("paused by %+v, %t", by, known)
	}
}

func TestAnAdmissionIsGoodUntilItsTimeAndUnderItsRules(t *testing.T) {
	o, g := watched(t, false, "a")
	j := judged(t, o, "a")
	now, rules := o.Facts.Clock.Now(), g.RuleSetHash("ConditionSet")
	if !admits(j, now, rules) {
		t.Fatalf("the rules refuse it: %s", j.Verdict.Message())
	}
	if admits(j, now, "others") {
		t.Error("one may act under rules that it wasn't judged by")
	}
	j.Verdict.RecheckAt = now.Add(time.Second)
	if !admits(j, now, rules) || admits(j, now.Add(time.Second), rules) {
		t.Error("an admission that ends in a second doesn't end then")
	}
}
