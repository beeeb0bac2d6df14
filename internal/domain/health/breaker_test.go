package health_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func TestFlips(t *testing.T) {
	const targets = 20 // of which 4 are a fifth
	flips := &health.Breaker{}
	flip := func(i int, after time.Duration, want bool) {
		t.Helper()
		if got := flips.AllowFalse(fmt.Sprint("target-", i), "X", false, targets, start.Add(after)); got != want {
			t.Errorf("target %d after %s: %v", i, after, got)
		}
	}
	for i := range 4 {
		flip(i, 0, true)
	}
	flip(0, time.Minute, true) // again, but one target
	flip(4, 4*time.Minute, false)
	b, open := flips.Opening()
	if !open || b.Turned != 5 || b.Targets != targets || b.ID != "20260301t030400000000z" {
		t.Fatalf("%+v", b)
	}
	flip(9, time.Hour, false) // time doesn't close it
	if flips.Reset("another", start) || !flips.Reset(b.ID, start.Add(time.Hour)) {
		t.Error("reset by another's id, or not by its own")
	}
	flip(9, time.Hour, true)
}

func TestWhatIsInDoubtIsBelievedAfterAReset(t *testing.T) {
	const targets = 20 // of which 4 are a fifth
	flips, now := &health.Breaker{}, start
	fail := func(from, to int, doubted bool) (may int) {
		for i := from; i < to; i++ {
			if flips.AllowFalse(fmt.Sprint(i), "X", doubted, targets, now) {
				may++
			}
		}
		return may
	}
	reset := func() {
		b, _ := flips.Opening()
		if !flips.Reset(b.ID, now) {
			t.Fatal("no breaker is open")
		}
		now = now.Add(time.Minute)
	}
	if may := fail(0, 12, false); may != 4 {
		t.Fatalf("%d of 12 are believed at once", may)
	}
	if may := fail(4, 12, true); may != 0 {
		t.Fatalf("%d that are in doubt are believed while the breaker is open", may)
	}
	reset()
	if may := fail(4, 12, true); may != 8 {
		t.Errorf("after the reset %d of the 8 that were held back are believed", may)
	}
	if may := fail(4, 20, false); may != 4 {
		t.Errorf("%d others, and of those that recovered, are believed, not as many as may turn False together", may)
	}
	reset()
	now = now.Add(4 * time.Minute)
	if may := fail(0, 20, true); may != 4 {
		t.Errorf("%d of a later wave are believed", may)
	}
}

func TestWhatIsInDoubtIsBelievedByWhoStartsAnew(t *testing.T) {
	flips := &health.Breaker{}
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start})
	if !flips.Reset("x", start) {
		t.Fatal("a restored breaker isn't reset by its ID")
	}
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start}) // as a status still tells
	for i := range 10 {
		if !flips.AllowFalse(fmt.Sprint(i), "X", true, 10, start) {
			t.Fatalf("the %dth that another process doubted isn't believed", i+1)
		}
	}
	flips.Restore(&limit.Opening{ID: "y", OpenedAt: start})
	if b, open := flips.Opening(); !open || b.ID != "y" {
		t.Error("a later opening isn't taken over")
	}
}

func TestATargetThatIsMadeAnewIsNotBelieved(t *testing.T) {
	flips := &health.Breaker{}
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start})
	names := []string{"a", "b", "c"}
	for _, name := range names {
		flips.AllowFalse(name, "X", false, 3, start)
	}
	flips.Reset("x", start)
	for i, name := range names {
		flips.Forget(name)
		if may := flips.AllowFalse(name, "X", false, 3, start); may != (i < 2) {
			t.Errorf("%s may turn False: %t", name, may)
		}
	}
}

func TestOpeningsWithinASecondAreTold(t *testing.T) {
	flips, ids := &health.Breaker{}, []string{}
	for i := range 2 {
		now := start.Add(time.Duration(i) * time.Microsecond)
		for _, name := range []string{"a", "b", "c"} {
			flips.AllowFalse(name, "X", false, 3, now)
		}
		b, open := flips.Opening()
		if !open {
			t.Fatal("three of three didn't open the breaker")
		}
		ids = append(ids, b.ID)
		flips.Reset(b.ID, now)
	}
	if ids[0] >= ids[1] {
		t.Errorf("the openings are %v", ids)
	}
}

func TestFlipsThatAreFarApart(t *testing.T) {
	flips := &health.Breaker{}
	for i := range 30 {
		if !flips.AllowFalse(fmt.Sprint(i), "X", false, 20, start.Add(time.Duration(i)*80*time.Second)) {
			t.Fatalf("the breaker opened at the %dth", i)
		}
	}
}

func TestTwoTargetsAreTooFewToTell(t *testing.T) {
	flips := &health.Breaker{}
	if !flips.AllowFalse("a", "X", false, 2, start) || !flips.AllowFalse("b", "X", false, 2, start) {
		t.Error("two of two opened the breaker")
	}
	if flips.AllowFalse("c", "X", false, 3, start) {
		t.Error("three of three didn't")
	}
}

func TestATargetThatIsGoneCountsForItsFiveMinutes(t *testing.T) {
	for after, may := range map[time.Duration]bool{4 * time.Minute: false, 5 * time.Minute: true} {
		flips := &health.Breaker{}
		for _, name := range []string{"a", "b"} {
			flips.AllowFalse(name, "X", false, 3, start)
			flips.Forget(name)
		}
		if got := flips.AllowFalse("c", "X", false, 1, start.Add(after)); got != may {
			t.Errorf("after %s the third may turn False: %t", after, got)
		}
	}
}

func TestARegistrationThatIsMadeAnewInheritsWhatTurned(t *testing.T) {
	former, flips := &health.Breaker{}, &health.Breaker{}
	former.AllowFalse("a", "X", false, 3, start)
	former.AllowFalse("b", "X", false, 3, start)
	if !former.HasRecent(start.Add(4*time.Minute)) || (&health.Breaker{}).HasRecent(start) {
		t.Error("what turned lately doesn't count, or nothing does")
	}
	flips.Inherit(former)
	if flips.AllowFalse("c", "X", false, 3, start) {
		t.Error("the third of three may turn False")
	}
	if former.HasRecent(start.Add(5 * time.Minute)) {
		t.Error("what turned long ago counts")
	}
}

func TestAWriteThatFailedTakesBackItsOwnConditionAlone(t *testing.T) {
	flips := &health.Breaker{}
	for _, name := range []string{"a", "b"} {
		if !flips.AllowFalse(name, "X", false, 3, start) || !flips.AllowFalse(name, "Y", false, 3, start) {
			t.Fatalf("%s opened the breaker", name)
		}
		flips.RevertFalse(name, "Y")
	}
	if flips.AllowFalse("c", "X", false, 3, start) {
		t.Error("what turned False and was written isn't counted")
	}
}

func TestARestoredBreakerHolds(t *testing.T) {
	flips := &health.Breaker{}
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start})
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start})
	if b, open := flips.Opening(); !open || b.ID != "x" || flips.AllowFalse("a", "X", false, 100, start) {
		t.Errorf("%+v", b)
	}
}

// A look for the generation before may count last. Its thousand targets would keep the breaker of the new one's ten shut.
func TestTargetsAreCountedForEachGeneration(t *testing.T) {
	flips := &health.Breaker{}
	for i, step := range []struct {
		generation   int64
		are, counted int
		after        time.Duration
	}{{1, 1000, 1000, 0}, {2, 10, 10, 0}, {1, 1000, 1000, 0}, {2, 10, 10, 0}, {2, 11, 10, 0}, {2, 11, 11, time.Second}} {
		if got := flips.TargetCount(step.generation, time.Second, func() int { return step.are }, start.Add(step.after)); got != step.counted {
			t.Errorf("step %d gives %d targets, not %d", i, got, step.counted)
		}
	}
}

func TestTheBreakerClosesOnceNothingIsInDoubt(t *testing.T) {
	const targets = 10 // of which 2 are a fifth
	flips := &health.Breaker{}
	open := func(want bool, when string) {
		t.Helper()
		closed := flips.CloseIfClear()
		if _, is := flips.Opening(); is != want || closed == is {
			t.Errorf("%s it is open: %t; closed by that: %t", when, is, closed)
		}
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		flips.AllowFalse(name, "X", false, targets, start)
	}
	flips.AllowFalse("c", "Y", false, targets, start)
	open(true, "before what is in doubt was written")
	flips.RecordVerdict("c", "X", health.Verdict{Status: health.True})
	flips.RecordVerdict("c", "Z", health.Verdict{Reason: health.ReasonInDoubt}) // of an earlier opening
	flips.RecordVerdict("d", "X", health.Verdict{Status: health.True})
	open(true, "while c's Y, e and f are in doubt")
	flips.RecordVerdict("c", "Y", health.Verdict{Status: health.True})
	flips.Forget("e")
	open(true, "while f is in doubt")
	flips.SetConditionTypes(sets.New("X"))
	open(true, "while f's X is in doubt, which is decided")
	told, _ := flips.Opening()
	flips.SetConditionTypes(sets.New("Y"))
	open(false, "once nobody decides f's X")

	flips.Restore(&told) // as a status that is read late still tells
	if !flips.AllowFalse("a", "X", false, targets, start) {
		t.Error("one that was believed already isn't after it closed")
	}
	if flips.AllowFalse("g", "X", false, targets, start) {
		t.Error("those that turned False before it closed don't count any more")
	}
}

func TestABreakerOfBeforeClosesOnceItsTargetsWereJudged(t *testing.T) {
	flips := &health.Breaker{}
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start})
	flips.RecordVerdict("a", "X", health.Verdict{Reason: health.ReasonInDoubt})
	if flips.CloseIfClear() {
		t.Error("it closes while a is in doubt")
	}
	flips.RecordVerdict("a", "X", health.Verdict{Status: health.True})
	if !flips.CloseIfClear() {
		t.Error("it doesn't close")
	}
}

// A replica that doesn't act knows of a breaker by the status alone.
func TestABreakerOfAnotherProcessIsFollowed(t *testing.T) {
	flips := &health.Breaker{}
	is := func(want, when string) {
		t.Helper()
		if b, _ := flips.Opening(); b.ID != want {
			t.Errorf("%s it is %q, not %q", when, b.ID, want)
		}
	}
	flips.Restore(&limit.Opening{ID: "x", OpenedAt: start})
	is("x", "as the status tells")
	flips.Restore(nil)
	is("", "once the status tells of none")
	flips.Restore(&limit.Opening{ID: "y", OpenedAt: start})
	flips.Restore(&limit.Opening{ID: "z", OpenedAt: start})
	is("z", "as the status tells by now")
	flips.AllowFalse("a", "X", false, 3, start)
	flips.Restore(nil)
	is("z", "while this process holds something back by it,")
	flips.Reset("z", start)
	for _, name := range []string{"a", "b", "c"} {
		flips.AllowFalse(name, "X", false, 3, start.Add(time.Hour))
	}
	own, _ := flips.Opening()
	for _, name := range []string{"a", "b", "c"} { // of which only c is held back by it
		flips.Release(name, "X")
	}
	flips.Restore(nil)
	is(own.ID, "of one that this process opened, whatever a status that is late tells,")
}

func TestWhatAnEarlierOpeningDoubtedKeepsNoLaterOneOpen(t *testing.T) {
	flips := &health.Breaker{}
	open := func(now time.Time) string {
		for _, name := range []string{"a", "b", "c"} {
			flips.AllowFalse(name, "X", false, 3, now)
		}
		o, _ := flips.Opening()
		return o.ID
	}
	if !flips.Reset(open(start), start) {
		t.Fatal("no breaker opened")
	}
	open(start.Add(time.Hour))
	flips.RecordVerdict("long unknown", "X", health.Verdict{Status: health.Unknown, History: health.History{Doubted: true}})
	if !flips.RecordVerdict("c", "X", health.Verdict{Status: health.True}) || !flips.CloseIfClear() {
		t.Error("it doesn't close once what it held back is True")
	}
}
