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

// admitted says whether one may act for a set now.
func admitted(t *testing.T, o *Observer, name string) bool {
	plan := condition.Plan{Steps: []condition.Step{{Verb: condition.Taint, Set: types.UID("uid-of-" + name), SetName: name, To: "NoSchedule"}}}
	return len(o.admittedFor(t.Context(), plan)) == 1
}

func TestASetWhoseRulesChangedIsNotActedFor(t *testing.T) {
	o, g := watched(t, false, "a")
	if !admitted(t, o, "a") {
		t.Fatal("the rules refuse it")
	}
	g.SetGuardrails(ruleOver("ConditionSet"))
	if admitted(t, o, "a") {
		t.Error("until it is judged again one may still act for it")
	}
	o.policies.Judge(t.Context(), types.NamespacedName{Name: "a"})
	if !admitted(t, o, "a") {
		t.Error("one may not act for it though the new rules admit it")
	}
}

func TestNothingIsDoneBeforeGuardrailsAreRead(t *testing.T) {
	o, g := watched(t, true, "a")
	if _, known := o.policies.PausedBy(); known {
		t.Error("it says who pauses")
	}
	if admitted(t, o, "a") {
		t.Error("one may act for a set")
	}
	g.SetGuardrails(nil)
	if by, known := o.policies.PausedBy(); by.By != "" || !known {
		t.Errorf("paused by %+v, %t", by, known)
	}
}
