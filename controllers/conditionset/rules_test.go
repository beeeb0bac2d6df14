package conditionset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

func TestWhoPauses(t *testing.T) {
	for want, by := range map[string][]string{
		"":                                     nil,
		"Guardrail freeze pauses all new acts": {"freeze"},
		"Guardrails a, b pause all new acts":   {"a", "b"},
		"Guardrails aren't read yet, which pauses all new acts": {guardrail.UnreadName},
	} {
		if got := pausedBy(guardrail.Policy{PausedBy: by}); got != want {
			t.Errorf("%q gives %q, want %q", by, got, want)
		}
	}
}

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
		o.set(t.Context(), storedSet(name))
	}
	return o, g
}

func storedSet(name string) *v1alpha1.ConditionSet {
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

func TestOnlyTheSetsThatAChangeConcernsAreJudgedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*guard.Guard)
		want   int
	}{
		"a rule over sets":         {func(g *guard.Guard) { g.SetGuardrails(ruleOver("ConditionSet")) }, 2},
		"a rule over another kind": {func(g *guard.Guard) { g.SetGuardrails(ruleOver("GuardrailException")) }, 0},
		"limits alone": {func(g *guard.Guard) {
			g.SetGuardrails([]*v1alpha1.Guardrail{{Spec: v1alpha1.GuardrailSpec{Paused: true}}})
		}, 0},
		"an exception for one":         {func(g *guard.Guard) { g.SetExceptions(exceptionFor("ConditionSet", "a")) }, 1},
		"an exception for nobody here": {func(g *guard.Guard) { g.SetExceptions(exceptionFor("ConditionSet", "c")) }, 0},
		"an exception of another kind": {func(g *guard.Guard) { g.SetExceptions(exceptionFor("Guardrail", "a")) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o, g := watched(t, false, "a", "b")
			c.change(g)
			if got := o.again.Len(); got != c.want {
				t.Errorf("%d sets are judged again, want %d", got, c.want)
			}
			for _, name := range []string{"a", "b"} {
				if j, _ := o.judgementOf(name); c.want == 2 && j.admits(o.Facts.Clock.Now(), g.RuleSetHash("ConditionSet")) {
					t.Errorf("until it is judged again one may still act for %s", name)
				}
			}
		})
	}
}

func exceptionFor(kind, name string) []*v1alpha1.GuardrailException {
	return []*v1alpha1.GuardrailException{{Spec: v1alpha1.GuardrailExceptionSpec{
		RuleIDs: []string{"org/r"}, TargetRef: v1alpha1.ExceptionTarget{Kind: kind, Name: name}, ExpiresAt: "2026-03-02T00:00:00Z",
	}}}
}

func TestNothingIsDoneBeforeGuardrailsAreRead(t *testing.T) {
	o, g := watched(t, true, "a")
	if _, ok := o.pausedBy(); ok {
		t.Error("it says who pauses")
	}
	if j, _ := o.judgementOf("a"); j.admits(o.Facts.Clock.Now(), g.RuleSetHash("ConditionSet")) {
		t.Error("one may act for a set")
	}
	g.SetGuardrails(nil)
	if by, ok := o.pausedBy(); by != "" || !ok || o.again.Len() != 1 {
		t.Errorf("paused by %q, %t; %d sets are judged again", by, ok, o.again.Len())
	}
}

func TestAnAdmissionIsGoodUntilItsTimeAndUnderItsRules(t *testing.T) {
	o, g := watched(t, false, "a")
	j, _ := o.judgementOf("a")
	now, rules := o.Facts.Clock.Now(), g.RuleSetHash("ConditionSet")
	if !j.admits(now, rules) {
		t.Fatalf("the rules refuse it: %s", j.verdict.Message())
	}
	if j.admits(now, "others") {
		t.Error("one may act under rules that it wasn't judged by")
	}
	j.verdict.RecheckAt = now.Add(time.Second)
	if !j.admits(now, rules) || j.admits(now.Add(time.Second), rules) {
		t.Error("an admission that ends in a second doesn't end then")
	}
}

func TestASetIsJudgedAgainWhenWhatRulesReadChanged(t *testing.T) {
	o, _ := watched(t, false, "a")
	for name, c := range map[string]struct {
		change func(*v1alpha1.ConditionSet)
		same   bool
	}{
		"its status":      {func(s *v1alpha1.ConditionSet) { s.Status.ObservedGeneration = 7 }, true},
		"its spec":        {func(s *v1alpha1.ConditionSet) { s.Generation = 2 }, false},
		"its labels":      {func(s *v1alpha1.ConditionSet) { s.Labels = map[string]string{"team": "a"} }, false},
		"its annotations": {func(s *v1alpha1.ConditionSet) { s.Annotations = map[string]string{"team": "a"} }, false},
		"it is another":   {func(s *v1alpha1.ConditionSet) { s.UID = "new" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, _ := o.judgementOf("a")
			set := storedSet("a")
			c.change(set)
			if j.isOf(set) != c.same {
				t.Errorf("the judgement still holds: %t", !c.same)
			}
		})
	}
}

// changing is a clock that changes the rules when it is first asked what time it is: in the midst of a judgement.
type changing struct {
	testingclock.FakePassiveClock
	change func()
}

func (c *changing) Now() time.Time {
	if change := c.change; change != nil {
		c.change = nil
		change()
	}
	return c.FakePassiveClock.Now()
}

func TestASetThatIsJudgedWhileTheRulesChangeIsJudgedAgain(t *testing.T) {
	clock := &changing{FakePassiveClock: *testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))}
	g, err := guard.New(guard.Options{AwaitGuardrails: true, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	facts := &kube.Facts{Fleet: condition.NewFleet(limit.Builtin()), Clock: clock, Server: &kube.ServerClock{Clock: clock}}
	o := NewObserver(nil, g, facts, &kube.Rejections{})
	clock.change = func() { g.SetGuardrails(nil) } // from here on nothing waits for Guardrails any more
	o.set(t.Context(), storedSet("a"))
	if j, _ := o.judgementOf("a"); j.admitted.Valid() {
		t.Fatal("the rules changed too early: the test shows nothing")
	}
	if o.again.Len() != 1 {
		t.Error("the verdict of the former rules would stand for ever")
	}
}
