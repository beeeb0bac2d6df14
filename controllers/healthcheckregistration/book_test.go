package healthcheckregistration

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

var worker = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}

func targetNamed(name string) checking.Target {
	return checking.Target{Kind: worker.GroupKind(), Key: types.NamespacedName{Namespace: "shoot", Name: name}}
}

func found(status health.Status, message string) entry {
	return entry{verdicts: []verdict{verdictOf("X", health.Verdict{Status: status, Message: message})}}
}

// mayFail asks a registration's breaker.
func (b *book) mayFail(uid types.UID, target checking.Target, conditionType string, doubted bool, targets int, now time.Time) bool {
	return b.page(uid).flips.MayFail(nameOf(target).String(), conditionType, doubted, targets, now)
}

func TestATargetIsItsRequest(t *testing.T) {
	for _, target := range []checking.Target{targetNamed("w.1"), {Kind: worker.GroupKind(), Key: types.NamespacedName{Name: "without-namespace"}}} {
		if got := targetOf(nameOf(target)); got != target {
			t.Errorf("%v became %v", target, got)
		}
	}
}

func TestSummary(t *testing.T) {
	b := &book{}
	for i, status := range []health.Status{health.True, health.False, health.Unknown, health.Progressing, health.False} {
		b.page("r").note(targetNamed(fmt.Sprintf("w%d", i)), found(status, "m"))
	}
	s := b.page("r").summary()
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
		b.page("r").note(targetNamed(fmt.Sprintf("x%02d", i)), found(health.False, "m"))
	}
	if n := len(b.page("r").summary().worst); n != 20 {
		t.Errorf("status keeps %d targets", n)
	}
}

func TestNoteTellsWhatChanged(t *testing.T) {
	b, target := &book{}, targetNamed("w")
	for _, c := range []struct {
		found entry
		want  bool
	}{
		{found(health.True, "m"), true}, {found(health.True, "m"), false}, {found(health.True, "n"), false}, {found(health.False, "m"), true}, {found(health.False, "n"), true},
		{entry{verdicts: found(health.False, "n").verdicts, problem: "p"}, true},
	} {
		if got := b.page("r").note(target, c.found); got != c.want {
			t.Errorf("%+v changed: %t", c.found, got)
		}
	}
	if from := b.drop(target, map[types.UID]bool{"r": true}); len(from) != 0 {
		t.Errorf("dropped from what still selects it: %v", from)
	}
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.Name = "called"
	b.page("r").follow(hcr, noon)
	if from := b.drop(target, nil); len(from) != 1 || from[0] != "called" || b.page("r").summary().targets != 0 {
		t.Errorf("dropped from %v, %d left", from, b.page("r").summary().targets)
	}
}

func TestABreakerIsFollowed(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	b := &book{}
	for i := range 3 {
		b.mayFail("r", targetNamed(fmt.Sprint(i)), "X", false, 4, now)
	}
	opened, open := b.page("r").flips.Breaker()
	if !open {
		t.Fatal("three of four turned False, and the breaker is closed")
	}
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.UID = "r"
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: opened.ID}
	another := &book{}
	another.page("r").follow(hcr, now)
	if restored, open := another.page("r").flips.Breaker(); !open || restored.ID != opened.ID {
		t.Error("a new process doesn't take over the breaker that is open")
	}
	hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "of-yesterday"}
	another.page("r").follow(hcr, now)
	if _, open := another.page("r").flips.Breaker(); !open {
		t.Error("a reset of another opening closes it")
	}
	hcr.Annotations["autohealer.resourcestack.com/reset-breaker"] = opened.ID
	another.page("r").follow(hcr, now)
	another.page("r").follow(hcr, now) // the status may still tell of it
	if _, open := another.page("r").flips.Breaker(); open {
		t.Error("it is open after its reset")
	}
	hcr.Annotations = nil
	another.page("r").follow(hcr, now)
	if _, open := another.page("r").flips.Breaker(); open {
		t.Error("an old status opens it again once the reset is taken off")
	}
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "later"}
	another.page("r").follow(hcr, now)
	hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "later"}
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "the last"}
	another.page("r").follow(hcr, now)
	if b, open := another.page("r").flips.Breaker(); !open || b.ID != "the last" {
		t.Errorf("an opening that is told with the reset of the one before is missed: %+v", b)
	}
}

func TestAResetWhileNobodyRan(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.UID = "r"
	hcr.Status.Breaker = &v1alpha1.Breaker{ID: "x"}
	hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "x"}
	b := &book{}
	b.page("r").follow(hcr, now)
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
	p := plan{deciders: map[string][]decider{}}
	for _, conditionType := range []string{"X", "Y"} {
		p.Steps = append(p.Steps, health.Step{Condition: health.Condition{Type: conditionType, Status: health.False}, Before: health.True, Counted: true})
		p.deciders[conditionType] = []decider{{registration: &registration.Registration{UID: "r"}}}
	}
	for i := range 8 {
		target := targetNamed(fmt.Sprint(i))
		for _, step := range p.Steps {
			o.book.mayFail("r", target, step.Condition.Type, false, 4, now)
		}
		(&look{r: &TargetReconciler{Observer: o}, target: target}).notFailed(p, p.Steps)
		if _, open := o.book.page("r").flips.Breaker(); open {
			t.Fatalf("it opened after %d targets that nothing was written of", i+1)
		}
	}
}
