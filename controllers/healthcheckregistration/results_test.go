package healthcheckregistration

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

var worker = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}

func targetNamed(name string) checking.Target {
	return checking.Target{Kind: worker.GroupKind(), Key: types.NamespacedName{Namespace: "shoot", Name: name}}
}

func found(status health.Status, message string) targetResult {
	return targetResult{verdicts: []conditionResult{conditionResultOf("X", health.Verdict{Status: status, Message: message})}}
}

// following is a book with one registration.
func following(uid types.UID) *resultStore {
	b, hcr := &resultStore{}, &v1alpha1.HealthCheckRegistration{}
	hcr.UID, hcr.Name = uid, "called"
	b.update(hcr, noon)
	return b
}

// allowFalse asks a registration's breaker.
func (b *resultStore) mayFail(uid types.UID, target checking.Target, conditionType string, doubted bool, targets int, now time.Time) bool {
	return b.results(uid).breaker.AllowFalse(nameOf(target).String(), conditionType, doubted, targets, now)
}

func TestATargetIsItsRequest(t *testing.T) {
	for _, target := range []checking.Target{targetNamed("w.1"), {Kind: worker.GroupKind(), Key: types.NamespacedName{Name: "without-namespace"}}} {
		if got := targetOf(nameOf(target)); got != target {
			t.Errorf("%v became %v", target, got)
		}
	}
}

func TestSummary(t *testing.T) {
	b := following("r")
	for i, status := range []health.Status{health.True, health.False, health.Unknown, health.Progressing, health.False} {
		b.results("r").record(targetNamed(fmt.Sprintf("w%d", i)), found(status, "m"))
	}
	s := b.results("r").summary()
	if s.targets != 5 || s.by[health.True] != 1 || s.by[health.False] != 2 || s.by[health.Unknown] != 1 || s.by[health.Progressing] != 1 {
		t.Errorf("counts are %+v", s)
	}
	var order []string
	for _, w := range s.worst {
		order = append(order, w.Name+" "+w.Status)
	}
	if want := "[w1 False w4 False w2 Unknown w3 Progressing]"; fmt.Sprint(order) != want {
		t.Errorf("the worst are %v, not %s", order, want)
	}
	for i := range 40 {
		b.results("r").record(targetNamed(fmt.Sprintf("x%02d", i)), found(health.False, "m"))
	}
	if n := len(b.results("r").summary().worst); n != 20 {
		t.Errorf("status keeps %d targets", n)
	}
}

func TestNoteTellsWhatChanged(t *testing.T) {
	b, target := following("r"), targetNamed("w")
	for _, c := range []struct {
		found targetResult
		want  bool
	}{
		{found(health.True, "m"), true}, {found(health.True, "m"), false}, {found(health.True, "n"), false}, {found(health.False, "m"), true}, {found(health.False, "n"), true},
		{targetResult{verdicts: found(health.False, "n").verdicts, problem: "p"}, true},
	} {
		if got := b.results("r").record(target, c.found); got != c.want {
			t.Errorf("%+v changed: %t", c.found, got)
		}
	}
	if from := b.drop(target, map[types.UID]bool{"r": true}); len(from) != 0 {
		t.Errorf("dropped from what still selects it: %v", from)
	}
	if from := b.drop(target, nil); len(from) != 1 || from[0] != "called" || b.results("r").summary().targets != 0 {
		t.Errorf("dropped from %v, %d left", from, b.results("r").summary().targets)
	}
}

func TestABreakerIsFollowed(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	b := following("r")
	for i := range 3 {
		b.mayFail("r", targetNamed(fmt.Sprint(i)), "X", false, 4, now)
	}
	opened, open := b.results("r").breaker.Opening()
	if !open {
		t.Fatal("three of four turned False, and the breaker is closed")
	}
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.UID = "r"
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: opened.ID}
	another := &resultStore{}
	another.update(hcr, now)
	if restored, open := another.results("r").breaker.Opening(); !open || restored.ID != opened.ID {
		t.Error("a new process doesn't take over the breaker that is open")
	}
	hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "of-yesterday"}
	another.update(hcr, now)
	if _, open := another.results("r").breaker.Opening(); !open {
		t.Error("a reset of another opening closes it")
	}
	hcr.Annotations["autohealer.resourcestack.com/reset-breaker"] = opened.ID
	another.update(hcr, now)
	another.update(hcr, now) // the status may still tell of it
	if _, open := another.results("r").breaker.Opening(); open {
		t.Error("it is open after its reset")
	}
	hcr.Annotations = nil
	another.update(hcr, now)
	if _, open := another.results("r").breaker.Opening(); open {
		t.Error("an old status opens it again once the reset is taken off")
	}
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "later"}
	another.update(hcr, now)
	hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "later"}
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "the last"}
	another.update(hcr, now)
	if b, open := another.results("r").breaker.Opening(); !open || b.ID != "the last" {
		t.Errorf("an opening that is told with the reset of the one before is missed: %+v", b)
	}
}

func TestAResetWhileNobodyRan(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.UID = "r"
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "x"}
	hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "x"}
	b := &resultStore{}
	b.update(hcr, now)
	for i := range 10 {
		if !b.mayFail("r", targetNamed(fmt.Sprint("doubted", i)), "X", true, 20, now) {
			t.Fatalf("the %dth that was in doubt isn't believed", i+1)
		}
	}
	for i := range 5 {
		if may := b.mayFail("r", targetNamed(fmt.Sprint("new", i)), "X", false, 20, now); may != (i < 4) {
			t.Errorf("the %dth of a new wave may turn False: %t", i+1, may)
		}
	}
}

// Where the first write isn't answered, none of the others is tried: a breaker that counted them would open over nothing.
func TestWhatIsNotWrittenIsNotCounted(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	o := knowing(t)
	o.results.update(suspended("r", "v1alpha1", "X"), now)
	p := plan{TargetPlan: registration.TargetPlan{DecidedBy: map[string][]int{}}}
	for _, conditionType := range []string{"X", "Y"} {
		p.Steps = append(p.Steps, health.Step{Condition: health.Condition{Type: conditionType, Status: health.False}, Previous: health.True, Counted: true})
		p.DecidedBy[conditionType] = []int{0}
	}
	for i := range 8 {
		target := targetNamed(fmt.Sprint(i))
		for _, step := range p.Steps {
			o.results.mayFail("r", target, step.Condition.Type, false, 4, now)
		}
		(&evaluation{r: &TargetReconciler{Observer: o}, target: target, registrations: []activeRegistration{ofRegistration("r")}}).revertFalse(p, p.Steps)
		if _, open := o.results.results("r").breaker.Opening(); open {
			t.Fatalf("it opened after %d targets that nothing was written of", i+1)
		}
	}
}

// A look outlasts the registration that it is for. What it finds begins nothing that nobody forgets, and no status is asked for of none:
// with that all series of what nobody decides would go.
func TestWhatAForgottenRegistrationsLookFinds(t *testing.T) {
	l := leads(t)
	l.hcr.Spec.SuspendWhen = "" // and what it looks at isn't there
	l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.Generation++ })
	target := withReason(claimed("Mine"), health.ReasonSuccessful)
	in := lookedAt(t, l.Observer, target)
	in.r.Checker = readsLive()
	l.policies.Gone(l.hcr)
	p := in.plan(t.Context(), health.Layout{Shape: health.Gardener}, sets.New("Mine"))
	if len(in.registrations) != 1 || p.Verdicts["Mine"].Status == health.False || in.allowFalse(t.Context(), &in.registrations[0], "Mine", false, false) {
		t.Errorf("a breaker that isn't known is closed: %+v by %d", p.Verdicts, len(in.registrations))
	}
	in.revertFalse(p, []health.Step{{Condition: health.Condition{Type: "Mine"}, Counted: true}})
	in.recordResults(p, outcome{})
	l.renotifyTargets(l.hcr.UID)
	if len(l.results.byUID) != 0 {
		t.Errorf("%d registrations are remembered", len(l.results.byUID))
	}
	if from := l.results.drop(in.target, nil); len(from) != 0 {
		t.Errorf("statuses of %q are asked for", from)
	}
}

// waitsForALock says whether some goroutine waits for a mutex in a function.
func waitsForALock(function string) bool {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return slices.ContainsFunc(strings.Split(string(all), "\n\n"), func(goroutine string) bool {
		return strings.Contains(goroutine, "[sync.Mutex.Lock") && strings.Contains(goroutine, function)
	})
}

// What takes long of one registration holds up its own looks alone.
func TestResultsStayOpenWhile(t *testing.T) {
	for name, busy := range map[string]func(b *resultStore, goOn <-chan struct{}){
		"targets are counted for a generation that isn't any more": func(b *resultStore, goOn <-chan struct{}) {
			counts := make(chan struct{})
			go b.results("r").breaker.TargetCount(1, targetCountTTL, func() int { close(counts); <-goOn; return 0 }, noon)
			<-counts
			hcr := &v1alpha1.HealthCheckRegistration{}
			hcr.UID, hcr.Generation = "r", 2
			b.update(hcr, noon)
			b.drop(targetNamed("w"), nil)
		},
		"a target is dropped that somebody holds up": func(b *resultStore, goOn <-chan struct{}) {
			p := b.results("r")
			p.mu.Lock()
			go func() { <-goOn; p.mu.Unlock() }()
			go b.drop(targetNamed("w"), nil)
			for !waitsForALock("(*registrationResults).drop") {
				runtime.Gosched()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, goOn, done := following("r"), make(chan struct{}), make(chan struct{})
			defer close(goOn)
			go func() {
				busy(b, goOn)
				b.results("another")
				close(done)
			}()
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Error("others wait")
			}
		})
	}
}

// doubting is a look at a target of a registration whose breaker is open, and doubts the target's X.
func doubting(t *testing.T, o *Observer) *evaluation {
	t.Helper()
	o.results.update(hcrOf("r", 1, "X"), noon)
	list := o.results.results("r")
	for i := range 3 {
		list.breaker.AllowFalse(nameOf(targetNamed(fmt.Sprint(i))).String(), "X", false, 3, noon)
	}
	if _, open := list.breaker.Opening(); !open {
		t.Fatal("three of three turned False, and the breaker is closed")
	}
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"autohealer.resourcestack.com/owned-conditions": "X"}}}}
	return &evaluation{r: &TargetReconciler{Observer: o}, target: targetNamed("2"), object: object, registrations: []activeRegistration{ofRegistration("r")}}
}

// ofRegistration is an active one that decides X.
func ofRegistration(uid types.UID) activeRegistration {
	return activeRegistration{ActiveRegistration: registration.ActiveRegistration{State: lifecycle.Active, Registration: &registration.Registration{
		Name: "r", UID: uid, Checks: []*registration.Check{{ConditionType: "X"}},
	}}}
}

func hcrOf(name string, generation int64, conditionTypes ...string) *v1alpha1.HealthCheckRegistration {
	hcr := suspended(name, "v1", "X")
	hcr.Generation, hcr.Spec.Checks = generation, nil
	for _, conditionType := range conditionTypes {
		hcr.Spec.Checks = append(hcr.Spec.Checks, v1alpha1.HealthCheck{ConditionType: conditionType})
	}
	return hcr
}

func (l *evaluation) planned(v health.Verdict, failing bool) plan {
	return plan{
		TargetPlan: registration.TargetPlan{Plan: health.Plan{Verdicts: map[string]health.Verdict{"X": v}}, DecidedBy: map[string][]int{"X": {0}}},
		results:    []registration.CheckResults{{Failing: failing}},
	}
}

func TestOnlyARecoveryEndsADoubt(t *testing.T) {
	inDoubt := health.Verdict{Status: health.Unknown, Reason: health.ReasonInDoubt}
	since := health.History{Doubted: true}
	for name, c := range map[string]struct {
		happens func(l *evaluation)
		closes  bool
	}{
		"it is True":           {func(l *evaluation) { l.recordResults(l.planned(health.Verdict{Status: health.True}, false), outcome{}) }, true},
		"it is False":          {func(l *evaluation) { l.recordResults(l.planned(health.Verdict{Status: health.False}, true), outcome{}) }, true},
		"it still is in doubt": {func(l *evaluation) { l.recordResults(l.planned(inDoubt, true), outcome{}) }, false},
		"it can't be known": {func(l *evaluation) {
			l.recordResults(l.planned(health.Verdict{Status: health.Unknown, Reason: health.ReasonCheckError, History: since}, true), outcome{})
		}, false},
		"it progresses": {func(l *evaluation) {
			l.recordResults(l.planned(health.Verdict{Status: health.Progressing, History: since}, true), outcome{})
		}, false},
		"nothing is said of it": {func(l *evaluation) {
			l.recordResults(plan{}, outcome{})
		}, false},
		"it is somebody else's": {func(l *evaluation) {
			l.object.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "X", "status": "False", "reason": "Mine"}}}
			l.recordResults(plan{}, outcome{})
		}, true},
		"another's checks find something": {func(l *evaluation) { l.recordResults(l.planned(inDoubt, false), outcome{}) }, true},
		"the registration is paused": {func(l *evaluation) {
			l.registrations[0].State = lifecycle.Paused
			l.recordResults(l.planned(inDoubt, true), outcome{})
		}, false},
		"the kind takes no conditions for now": {func(l *evaluation) {
			p := l.planned(inDoubt, false)
			p.Unwritten = map[int]health.Plan{0: p.Plan}
			l.recordResults(p, outcome{})
		}, false},
		"it is True, which isn't written": {func(l *evaluation) {
			l.recordResults(l.planned(health.Verdict{Status: health.True}, true), outcome{notDone: map[string]error{"X": nil}})
		}, false},
		"a look of before tells of what isn't decided any more": {func(l *evaluation) {
			l.r.Observer.results.update(hcrOf("r", 2, "Y"), noon)
			l.r.Observer.results.results("r").breaker.AllowFalse(nameOf(l.target).String(), "X", false, 3, noon)
		}, true},
		"somebody holds the target": {func(l *evaluation) {
			l.registrations[0].State, l.registrations[0].Held = lifecycle.Paused, true
			l.recordResults(l.planned(inDoubt, true), outcome{})
		}, true},
		"the target is gone": {func(l *evaluation) { l.r.Observer.dropTarget(l.target, nil) }, true},
		"the registration doesn't select it any more": {func(l *evaluation) {
			l.r.Observer.results.update(hcrOf("r", 2, "X"), noon)
			l.r.Observer.dropTarget(l.target, nil)
		}, true},
		"the registration decides something else": {func(l *evaluation) { l.r.Observer.results.update(hcrOf("r", 2, "Y"), noon) }, true},
		"the registration is another generation":  {func(l *evaluation) { l.r.Observer.results.update(hcrOf("r", 2, "X"), noon) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := doubting(t, knowing(t))
			c.happens(l)
			if closes := l.r.Observer.results.results("r").breaker.CloseIfClear(); closes != c.closes {
				t.Errorf("the breaker closes: %t", closes)
			}
		})
	}
}

// A replica that doesn't lead never looks at a target: what it knows of the breaker is what the status tells.
func TestAStandbyForgetsABreakerThatClosedByItself(t *testing.T) {
	standby, hcr := &resultStore{}, hcrOf("r", 1, "X")
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "x", OpenedAt: metav1.NewTime(noon)}
	standby.update(hcr, noon)
	hcr.Status.Breaker = nil
	standby.update(hcr, noon)
	if _, open := standby.results("r").breaker.Opening(); open {
		t.Error("it would take over with a breaker that is closed")
	}
}

func TestARegistrationThatIsMadeAnewHasNoNewAllowance(t *testing.T) {
	for name, c := range map[string]struct {
		name  string
		after time.Duration
		late  bool // the former is forgotten after the new one came
		may   bool
	}{
		"at once":                        {name: "called"},
		"before the former is forgotten": {name: "called", late: true},
		"minutes later":                  {name: "called", after: 4 * time.Minute},
		"when all that is long ago":      {name: "called", after: 5 * time.Minute, may: true},
		"under another name":             {name: "other", may: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, hcr := following("former"), &v1alpha1.HealthCheckRegistration{}
			for _, target := range []string{"a", "b"} {
				b.mayFail("former", targetNamed(target), "X", false, 3, noon)
			}
			if !c.late {
				b.forget("former", noon)
			}
			hcr.UID, hcr.Name = "new", c.name
			b.update(hcr, noon.Add(c.after))
			b.forget("former", noon)
			if may := b.mayFail("new", targetNamed("c"), "X", false, 3, noon.Add(c.after)); may != c.may {
				t.Errorf("the third of three may turn False: %t", may)
			}
		})
	}
}

func TestWhatARegistrationLeftIsForgottenInTime(t *testing.T) {
	b := following("former")
	b.mayFail("former", targetNamed("a"), "X", false, 3, noon)
	b.forget("former", noon)
	if len(b.previousBreakers) != 1 {
		t.Errorf("%d are remembered", len(b.previousBreakers))
	}
	b.forget("another", noon.Add(5*time.Minute))
	if len(b.previousBreakers) != 0 {
		t.Errorf("%d are remembered when nothing counts", len(b.previousBreakers))
	}
}
