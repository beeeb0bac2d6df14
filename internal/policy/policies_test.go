package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type sets = Policies[*v1alpha1.ConditionSet, spec]

type known = Policy[*v1alpha1.ConditionSet, spec]

// spec is what these tests read of a set.
type spec string

func (spec) Unreadable() error { return nil }

// judging gives a judge of ConditionSets that follows a guard's rules, and has judged the named ones.
func judging(t *testing.T, o guard.Options, names ...string) (*sets, *guard.Guard) {
	t.Helper()
	if o.Clock == nil {
		o.Clock = testingclock.NewFakePassiveClock(noon)
	}
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	j := &sets{}
	j.Init(Hooks[*v1alpha1.ConditionSet, spec]{
		Kind: "ConditionSet", Guard: g, Clock: o.Clock, Rejections: &kube.Rejections{},
		Read:    func(cs *v1alpha1.ConditionSet, _ spec) spec { return spec(cs.Spec.Type) },
		Changed: func(context.Context, known, known) {},
		Forget:  func(*v1alpha1.ConditionSet) {},
	})
	for _, name := range names {
		j.observe(stored(name))
		j.judge(t.Context(), key(name))
	}
	return j, g
}

func key(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

func stored(name string) *v1alpha1.ConditionSet {
	return &v1alpha1.ConditionSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec: v1alpha1.ConditionSetSpec{
			Type: "Broken", Effect: "NoSchedule", TaintKey: "example.com/" + name,
			Conditions: map[string]v1alpha1.MemberCondition{"KernelDeadlock": {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
		},
	}
}

func rule(kind, expression string) []*v1alpha1.Guardrail {
	return []*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "org", UID: "o", Generation: 1}, Spec: v1alpha1.GuardrailSpec{
		Rules: []v1alpha1.GuardrailRule{{Name: "r", Kinds: []string{kind}, Severity: "Deny", Expression: expression}},
	}}}
}

func exception(kind, name string) []*v1alpha1.GuardrailException {
	return []*v1alpha1.GuardrailException{{Spec: v1alpha1.GuardrailExceptionSpec{
		RuleIDs: []string{"org/r"}, TargetRef: v1alpha1.ExceptionTarget{Kind: kind, Name: name}, ExpiresAt: "2026-03-02T00:00:00Z",
	}}}
}

func TestWhoPauses(t *testing.T) {
	for want, policy := range map[Pause]guardrail.Policy{
		{}: {},
		{By: "Guardrail freeze pauses all new acts"}:                                                 {PausedBy: []string{"freeze"}},
		{By: "Guardrails a, b pause all new acts"}:                                                   {PausedBy: []string{"a", "b"}},
		{By: "Guardrails aren't read yet, which pauses all new acts"}:                                {PausedBy: []string{guardrail.UnreadName}, Lost: "no CRD"},
		{By: "What Guardrails forbid isn't known, which pauses all new acts: no CRD", Unknown: true}: {PausedBy: []string{"freeze"}, Lost: "no CRD"},
	} {
		if got := PausedBy(policy); got != want {
			t.Errorf("%+v gives %+v, want %+v", policy, got, want)
		}
	}
}

func TestWhoFreezes(t *testing.T) {
	for want, p := range map[string]guardrail.Policy{
		"Guardrail stop freezes everything, undo included":                    {PausedBy: []string{"a", "stop"}, FrozenBy: []string{"stop"}},
		"Guardrails a, b freeze everything, undo included":                    {PausedBy: []string{"a", "b"}, FrozenBy: []string{"a", "b"}},
		"Guardrails aren't read yet, which freezes everything, undo included": guardrail.Unread(limit.Builtin()),
		"Guardrails aren't read yet, which pauses all new acts":               guardrail.Unjudged(limit.Builtin()),
	} {
		if got := PausedBy(p); got.By != want || got.Frozen != p.Frozen() {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
}

func TestOnlyThePoliciesThatAChangeConcernsAreJudgedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*guard.Guard)
		want   int
	}{
		"a rule over the kind":     {func(g *guard.Guard) { g.SetGuardrails(rule("ConditionSet", "object.metadata.name != 'nobody'")) }, 2},
		"a rule over another kind": {func(g *guard.Guard) { g.SetGuardrails(rule("WeederConfig", "object.metadata.name != 'nobody'")) }, 0},
		"limits alone": {func(g *guard.Guard) {
			g.SetGuardrails([]*v1alpha1.Guardrail{{Spec: v1alpha1.GuardrailSpec{Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: new(int32(5))}}}})
		}, 0},
		"a limit that a rule reads": {func(g *guard.Guard) {
			limited := rule("ConditionSet", "limits.maxPodDeletionsPerMinute > 0")
			limited[0].Spec.Limits = &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: new(int32(5))}
			g.SetGuardrails(limited)
		}, 2},
		"no limit that a rule reads": {func(g *guard.Guard) { g.SetGuardrails(rule("ConditionSet", "limits.maxPodDeletionsPerMinute > 0")) }, 0},
		"a pause alone": {func(g *guard.Guard) {
			g.SetGuardrails([]*v1alpha1.Guardrail{{Spec: v1alpha1.GuardrailSpec{Paused: true}}})
		}, 0},
		"an exception for one":         {func(g *guard.Guard) { g.SetExceptions(exception("ConditionSet", "a")) }, 1},
		"an exception for nobody here": {func(g *guard.Guard) { g.SetExceptions(exception("ConditionSet", "c")) }, 0},
		"an exception of another kind": {func(g *guard.Guard) { g.SetExceptions(exception("WeederConfig", "a")) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			j, g := judging(t, guard.Options{}, "a", "b")
			if strings.HasSuffix(name, "that a rule reads") {
				g.SetGuardrails(rule("ConditionSet", "limits.maxPodDeletionsPerMinute > 0"))
				j.judgeAllDue(t)
			}
			c.change(g)
			outdated := 0
			for _, name := range []string{"a", "b"} {
				if judged, _ := j.Get(key(name)); judged.Outdated {
					outdated++
				}
			}
			if outdated != c.want {
				t.Errorf("%d are outdated until then, want %d", outdated, c.want)
			}
			if got := j.judgeAllDue(t); got != c.want {
				t.Errorf("%d are judged again, want %d", got, c.want)
			}
		})
	}
}

// judgeAllDue does what Run would, and counts how often the rules were asked.
func (j *Policies[T, R]) judgeAllDue(t *testing.T) (judgements int) {
	t.Helper()
	for ; j.toJudge.Len() > 0; judgements++ {
		due, _ := j.toJudge.Get()
		if !j.judge(t.Context(), due) {
			t.Errorf("%s is gone", due)
		}
		j.toJudge.Done(due)
	}
	return judgements
}

func TestAJudgementIsAsItsObjectWas(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ConditionSet)
		holds  bool
	}{
		"its status":      {func(s *v1alpha1.ConditionSet) { s.Status.ObservedGeneration = 7 }, true},
		"its spec":        {func(s *v1alpha1.ConditionSet) { s.Generation = 2 }, false},
		"its labels":      {func(s *v1alpha1.ConditionSet) { s.Labels = map[string]string{"team": "a"} }, false},
		"its annotations": {func(s *v1alpha1.ConditionSet) { s.Annotations = map[string]string{"team": "a"} }, false},
		"it is another":   {func(s *v1alpha1.ConditionSet) { s.UID = "new" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, _ := judging(t, guard.Options{}, "a")
			changed := stored("a")
			changed.Spec.Type = "Other"
			c.change(changed)
			if holds := j.observe(changed); holds != c.holds {
				t.Errorf("the judgement holds: %t", holds)
			}
			judged, _ := j.Get(key("a"))
			if judged.Outdated == c.holds || judged.Object != changed || judged.Read != "Other" {
				t.Errorf("outdated %t; of what was seen last: %t, read %q", judged.Outdated, judged.Object == changed, judged.Read)
			}
		})
	}
}

func TestNothingIsAdmittedBeforeGuardrailsAreRead(t *testing.T) {
	j, g := judging(t, guard.Options{AwaitGuardrails: true}, "a")
	if judged, _ := j.Get(key("a")); judged.Admitted.Valid() {
		t.Error("it is admitted")
	}
	if _, known := j.PausedBy(); known {
		t.Error("it says who pauses")
	}
	g.SetGuardrails(nil)
	if by, known := j.PausedBy(); by.By != "" || !known || j.toJudge.Len() != 1 {
		t.Errorf("paused by %+v, %t; %d are judged again", by, known, j.toJudge.Len())
	}
}

func TestWhatRulesRefuseIsToldUntilThePolicyIsGone(t *testing.T) {
	j, g := judging(t, guard.Options{}, "a")
	g.SetGuardrails(rule("ConditionSet", "object.metadata.name != 'a'"))
	j.judge(t.Context(), key("a"))
	if got := j.hooks.Rejections.Of("org"); len(got) != 1 || got[0] != "ConditionSet/a" {
		t.Errorf("refused are %q", got)
	}
	another := stored("a")
	another.UID = "another"
	j.Gone(another) // news of a former one
	if _, ok := j.Get(key("a")); !ok {
		t.Error("the deletion of a former policy of this name took it along")
	}
	j.Gone(stored("a"))
	if _, ok := j.Get(key("a")); ok || len(j.hooks.Rejections.Of("org")) != 0 {
		t.Error("it is still known")
	}
}

// asked is an authorizer that lets questions wait.
type asked struct {
	questions chan authorizer.Attributes
	answers   chan struct{}
}

func (a *asked) Authorize(_ context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
	if q.GetUser().GetName() != "system:serviceaccount:slow:default" {
		return authorizer.DecisionAllow, "", nil
	}
	a.questions <- q
	<-a.answers
	return authorizer.DecisionAllow, "", nil
}

const asksForRights = "authorizer.serviceAccount(object.metadata.name, 'default').group('').resource('pods').namespace(object.metadata.name).check('delete').allowed()"

// An API server that takes its time over one tenant's rights must not keep the others waiting.
func TestASlowAnswerAboutOnePolicyKeepsNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{make(chan authorizer.Attributes), make(chan struct{})}
		j, g := judging(t, guard.Options{Authorizer: a})
		g.SetGuardrails(rule("ConditionSet", asksForRights))
		ctx, cancel := context.WithCancel(t.Context())
		judged := make(chan string, 10)
		j.hooks.Changed = func(_ context.Context, _, now known) { judged <- now.Object.Name }
		for range 2 {
			go j.Run(ctx)
		}
		for _, name := range []string{"slow", "a", "b"} {
			j.observe(stored(name))
			j.toJudge.Add(key(name))
			if name == "slow" {
				<-a.questions
			}
		}
		synctest.Wait()
		if len(judged) != 2 {
			t.Errorf("%d of 2 others were judged while one waits for its answer", len(judged))
		}
		close(a.answers)
		synctest.Wait()
		if slow, ok := j.Get(key("slow")); !ok || !slow.Admitted.Valid() {
			t.Error("the slow one isn't judged once it is answered")
		}
		cancel()
		synctest.Wait()
	})
}

// TestOnlyThePoliciesThatAskForRightsAreJudgedAgainAsTheseGrowOld: rights change without an event.
func TestOnlyThePoliciesThatAskForRightsAreJudgedAgainAsTheseGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, g := judging(t, guard.Options{Authorizer: willing{}, Clock: clock.RealClock{}}, "asks", "doesnt")
		g.SetGuardrails(rule("ConditionSet", "object.metadata.name != 'asks' || "+asksForRights))
		ctx, cancel := context.WithCancel(t.Context())
		judged := map[string]int{}
		j.hooks.Changed = func(_ context.Context, _, now known) { judged[now.Object.Name]++ }
		go j.Run(ctx)
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if judged["doesnt"] != 1 || judged["asks"] != 7 {
			t.Errorf("judged %v, want the new rule asked once of each, and within 45 seconds again of the one that asks for rights", judged)
		}
		cancel()
		synctest.Wait()
	})
}

// willing lets everybody do everything.
type willing struct{}

func (willing) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// What changes while the rules are asked must be judged once more, and a late answer about an old state changes nothing.
func TestWhatChangesWhileItIsJudgedIsJudgedAgain(t *testing.T) {
	for name, change := range map[string]func(*sets, *guard.Guard){
		"the policy": func(j *sets, _ *guard.Guard) {
			next := stored("slow")
			next.Generation = 2
			j.observe(next)
		},
		"the rules": func(_ *sets, g *guard.Guard) {
			g.SetGuardrails(rule("ConditionSet", "object.metadata.name == 'nobody'"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asked{make(chan authorizer.Attributes), make(chan struct{})}
			j, g := judging(t, guard.Options{Authorizer: a})
			g.SetGuardrails(rule("ConditionSet", asksForRights))
			j.observe(stored("slow"))
			done := make(chan struct{})
			go func() {
				defer close(done)
				j.judge(t.Context(), key("slow"))
			}()
			<-a.questions
			change(j, g)
			close(a.answers)
			<-done
			if judged, _ := j.Get(key("slow")); !judged.Outdated || j.toJudge.Len() != 1 {
				t.Errorf("outdated %t, %d are judged again", judged.Outdated, j.toJudge.Len())
			}
		})
	}
}

func TestAPolicyThatWentWhileItWasJudgedIsForgotten(t *testing.T) {
	a := &asked{make(chan authorizer.Attributes), make(chan struct{})}
	j, g := judging(t, guard.Options{Authorizer: a})
	g.SetGuardrails(rule("ConditionSet", asksForRights))
	j.observe(stored("slow"))
	done := make(chan bool)
	go func() { done <- j.judge(t.Context(), key("slow")) }()
	<-a.questions
	j.Gone(stored("slow"))
	close(a.answers)
	if <-done {
		t.Error("it says that the policy is there")
	}
	if _, ok := j.Get(key("slow")); ok {
		t.Error("its judgement stays for ever")
	}
}

// Guardrails change in several goroutines: what one of them asked for first may come last.
func TestTheLatestPauseHoldsHoweverLateAnEarlierOneCounts(t *testing.T) {
	j, g := judging(t, guard.Options{}, "a")
	slow, goOn := make(chan struct{}), make(chan struct{})
	var later atomic.Bool
	j.hooks.Guardrails = func(guardrail.Policy) {
		if !later.Swap(true) {
			close(slow)
			<-goOn
		}
	}
	var running sync.WaitGroup
	running.Go(func() {
		g.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: v1alpha1.GuardrailSpec{
			Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: new(int32(5))},
		}}})
	})
	<-slow
	paused := make(chan struct{})
	running.Go(func() {
		defer close(paused)
		g.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "freeze"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}})
	})
	select { // it must wait for the first
	case <-paused:
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	running.Wait()
	if by, _ := j.PausedBy(); by.By == "" {
		t.Error("nothing pauses")
	}
}

// One edit of a Guardrail may end a pause and refuse a policy.
func TestWhatRulesMayRefuseIsOutdatedBeforeAPauseEnds(t *testing.T) {
	j, g := judging(t, guard.Options{}, "a")
	org := rule("ConditionSet", "object.metadata.name != 'a'")
	org[0].Spec.Paused, org[0].Spec.Rules = true, nil
	g.SetGuardrails(org)
	var acts []bool
	j.hooks.Changed = func(_ context.Context, _, now known) {
		acts = append(acts, now.Pause.By == "" && now.Admitted.Valid() && !now.Outdated)
	}
	g.SetGuardrails(rule("ConditionSet", "object.metadata.name != 'a'"))
	if slices.Contains(acts, true) {
		t.Error("it may act by what was judged before")
	}
}

func TestLooksAtAStatusThatWasWrittenWait(t *testing.T) {
	j, _ := judging(t, guard.Options{}, "a")
	q := &delays{}
	j.Statuses.Attach(q)
	j.Seen(t.Context(), stored("a"))
	j.Seen(t.Context(), stored("a"))
	changed := stored("a")
	changed.Generation++
	j.Seen(t.Context(), changed)
	if got := fmt.Sprint(q.all); got != "[0s 1s 0s]" {
		t.Errorf("looks after %s", got)
	}
}

// delays is a queue that notes how long what it gets should wait.
type delays struct {
	kube.Queue
	all []time.Duration
}

func (d *delays) AddAfter(_ reconcile.Request, after time.Duration) { d.all = append(d.all, after) }
