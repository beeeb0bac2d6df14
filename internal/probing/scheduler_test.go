package probing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"
)

// schedulerEnv runs a scheduler in a synctest bubble, where time passes only when all goroutines wait.
type schedulerEnv struct {
	*scheduler
	mu       sync.Mutex
	problems []string
}

func newSchedulerEnv(workers int) *schedulerEnv {
	return &schedulerEnv{scheduler: newScheduler(clock.RealClock{}, workers, func(time.Duration) {})}
}

func (w *schedulerEnv) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// during runs the scheduler while act does things.
func (w *schedulerEnv) during(act func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	act()
	cancel()
	<-done
}

// fake is a task that knows when it may run.
type fake struct {
	env            *schedulerEnv
	name           string
	takes, every   time.Duration
	mu             sync.Mutex
	notBefore      time.Time
	starts         []time.Time
	running, ended bool
	rescheduled    bool // notBefore during the current run
}

func (f *fake) run(ctx context.Context) time.Time {
	f.mu.Lock()
	now := time.Now()
	if f.running || f.ended {
		f.env.problem("%s runs though running (%t) or ended (%t)", f.name, f.running, f.ended)
	}
	if now.Before(f.notBefore) {
		f.env.problem("%s runs %s early", f.name, f.notBefore.Sub(now))
	}
	f.running, f.rescheduled = true, false
	f.starts = append(f.starts, now)
	f.mu.Unlock()
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = false
	next := time.Now().Add(f.every)
	if !f.rescheduled {
		f.notBefore = next
	}
	return next
}

func (f *fake) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running || f.ended {
		f.env.problem("%s is closed though running (%t) or ended (%t)", f.name, f.running, f.ended)
	}
	f.ended = true
}

// ran is how often, so far.
func (f *fake) ran() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.starts)
}

func (f *fake) closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *fake) allowAt(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notBefore, f.rescheduled = at, true
}

func keyOf(i int) Key { return Key{Name: fmt.Sprint(i)} }

// start adds n tasks that are due now.
func (w *schedulerEnv) start(n int, takes, every time.Duration) []*fake {
	var fakes []*fake
	for i := range n {
		f := &fake{env: w, name: fmt.Sprint(i), takes: takes, every: every, notBefore: time.Now()}
		w.add(keyOf(i), f, time.Now())
		fakes = append(fakes, f)
	}
	return fakes
}

func TestTasksRunAtTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchedulerEnv(2)
		var tasks []*fake
		w.during(func() {
			tasks = w.start(2, time.Second, 9*time.Second)
			time.Sleep(95 * time.Second)
		})
		for _, f := range tasks {
			if len(f.starts) != 10 {
				t.Errorf("%s ran %d times in 95 s", f.name, len(f.starts))
			}
			for i, start := range f.starts {
				if want := f.starts[0].Add(time.Duration(i) * 10 * time.Second); !start.Equal(want) {
					t.Errorf("%s ran %s late", f.name, start.Sub(want))
				}
			}
			if !f.ended {
				t.Errorf("%s wasn't closed at the end", f.name)
			}
		}
	})
}

func TestWithTooFewWorkersAllTasksAreEquallyLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchedulerEnv(3)
		var tasks []*fake
		w.during(func() {
			tasks = w.start(300, 200*time.Millisecond, 10*time.Second) // 60 s of work each 10 s, for 3 workers
			time.Sleep(10 * time.Minute)
		})
		var counts []int
		for _, f := range tasks {
			counts = append(counts, len(f.starts))
		}
		if least, most := slices.Min(counts), slices.Max(counts); least < 11 || most > least+1 {
			t.Errorf("tasks ran between %d and %d times", least, most)
		}
	})
}

// Half of the servers swallow every packet: each of their runs takes twice the interval. The other half's are on time.
func TestServersThatDontAnswerDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets, workers, every, late = 5000, 256, 10 * time.Second, time.Second
		w := newSchedulerEnv(workers)
		var all []*fake
		w.during(func() {
			for i := range targets {
				f := &fake{env: w, name: fmt.Sprint(i), takes: 5 * time.Millisecond, every: every}
				if i%2 == 0 {
					f.takes = 2 * every
				}
				w.add(keyOf(i), f, time.Now().Add(every*time.Duration(i)/targets))
				all = append(all, f)
			}
			time.Sleep(2 * time.Minute)
		})
		worst, least := time.Duration(0), targets
		for i := 1; i < targets; i += 2 {
			starts := all[i].starts
			least = min(least, len(starts))
			for n := 1; n < len(starts); n++ {
				worst = max(worst, starts[n].Sub(starts[n-1])-every)
			}
		}
		if worst > late || least < 11 {
			t.Errorf("those that answer ran %d times at least in two minutes, and were up to %s late", least, worst)
		}
		if len(w.problems) > 0 {
			t.Error(w.problems[0])
		}
	})
}

// Runs take long here because they wait for processors. More at once would make each last longer, and end none of them sooner.
func TestBusyProcessorsGetNoMoreRunsAtOnce(t *testing.T) {
	text := make([]byte, 4096)
	work := func() {
		for range 200 {
			_ = sha256.Sum256(text) // and no garbage: who waits for its collection waits for no processor
		}
	}
	began := time.Now()
	work()
	rounds := int(60*time.Millisecond/time.Since(began)) + 1
	workers := 8 * runtime.GOMAXPROCS(0)
	w := newSchedulerEnv(workers)
	var running, most, over atomic.Int64
	ended := make(chan struct{})
	for i := range 8 * workers {
		w.add(Key{Name: strconv.Itoa(i)}, taskFunc(func() time.Time {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			for range rounds {
				work()
			}
			running.Add(-1)
			if over.Add(1) == int64(8*workers) {
				close(ended)
			}
			return time.Now().Add(time.Hour)
		}), time.Now())
	}
	w.during(func() { <-ended })
	if most := int(most.Load()); most > 2*workers {
		t.Errorf("%d ran at once, with %d workers", most, workers)
	}
}

// taskFunc is a task that is nothing but its run.
type taskFunc func() time.Time

func (f taskFunc) run(context.Context) time.Time { return f() }
func (taskFunc) close()                          {}

func TestATaskThatAsksForNoPauseGetsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchedulerEnv(1)
		w.during(func() {
			f := w.start(1, 0, -time.Hour)[0]
			time.Sleep(9500 * time.Millisecond)
			if f.ran() != 10 {
				t.Errorf("ran %d times in 9.5 s", f.ran())
			}
		})
	})
}

func TestARemovedTaskIsClosedOnceItsRunIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchedulerEnv(1)
		w.during(func() {
			f := w.start(1, 10*time.Second, time.Second)[0]
			time.Sleep(time.Second)
			w.remove(keyOf(0))
			other := &fake{env: w, name: "other", every: time.Hour, notBefore: time.Now()}
			w.add(keyOf(0), other, time.Now())
			time.Sleep(time.Second)
			if f.closed() || other.ran() > 0 {
				t.Errorf("closed: %t; the other ran %d times", f.closed(), other.ran())
			}
			time.Sleep(time.Minute)
			if !f.closed() || other.ran() != 1 {
				t.Errorf("closed: %t; the other ran %d times", f.closed(), other.ran())
			}
			if len(w.problems) > 0 {
				t.Error(w.problems)
			}
		})
	})
}

// step is something that is done to a task while others run.
type step struct {
	what  string
	key   int
	after time.Duration
	takes time.Duration
	every time.Duration
}

func steps() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what:  rapid.SampledFrom([]string{"add", "add", "remove", "hasten"}).Draw(t, "what"),
			key:   rapid.IntRange(0, 5).Draw(t, "key"),
			after: time.Duration(rapid.IntRange(0, 3000).Draw(t, "after")) * time.Millisecond,
			takes: time.Duration(rapid.IntRange(0, 5000).Draw(t, "takes")) * time.Millisecond,
			every: time.Duration(rapid.IntRange(1, 5).Draw(t, "every")) * time.Second,
		}
	}), 1, 60)
}

func TestWhateverIsDoneNoTaskRunsTwiceAtOnceOrEarlyOrAfterItsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		workers, script := rapid.IntRange(1, 4).Draw(rt, "workers"), steps().Draw(rt, "steps")
		var problems []string
		synctest.Test(t, func(*testing.T) { problems = play(workers, script) })
		if len(problems) > 0 {
			rt.Fatal(problems)
		}
	})
}

// play does the steps, then lets everything run for a while, and returns what was wrong.
func play(workers int, script []step) []string {
	w := newSchedulerEnv(workers)
	current := map[int]*fake{}
	var all []*fake
	w.during(func() {
		for i, s := range script {
			time.Sleep(s.after)
			synctest.Wait()
			f, soon := current[s.key], time.Now().Add(s.every)
			switch {
			case s.what == "add":
				f = &fake{env: w, name: fmt.Sprintf("%d of step %d", s.key, i), takes: s.takes, every: s.every, notBefore: soon}
				all = append(all, f)
				current[s.key] = f
				w.remove(keyOf(s.key))
				w.add(keyOf(s.key), f, soon)
			case f == nil:
			case s.what == "remove":
				delete(current, s.key)
				w.remove(keyOf(s.key))
			case s.what == "hasten":
				f.allowAt(time.Time{})
				w.advance(keyOf(s.key), soon)
			}
		}
		w.settle(current)
	})
	for _, f := range all {
		if !f.closed() {
			w.problem("%s was never closed", f.name)
		}
	}
	if len(w.entries) != 0 {
		w.problem("%d entries are left", len(w.entries))
	}
	return w.problems
}

// settle sees that after all that was done every task still gets its turn.
func (w *schedulerEnv) settle(current map[int]*fake) {
	before := map[int]int{}
	time.Sleep(time.Minute)
	for key, f := range current {
		before[key] = f.ran()
	}
	time.Sleep(2 * time.Minute)
	for key, f := range current {
		if f.ran() == before[key] {
			w.problem("%s doesn't run any more", f.name)
		}
	}
}

// A task that waits for a worker when it is hastened needs no second run for it.
func TestATaskAdvancedWhileItWaitsForAWorkerRunsOnce(t *testing.T) {
	script := []step{
		{what: "add", key: 0, takes: time.Millisecond, every: 2 * time.Second},
		{what: "add", key: 5, every: 2 * time.Second},
		{what: "hasten", key: 5, after: 2 * time.Second, every: time.Second},
	}
	synctest.Test(t, func(t *testing.T) {
		if problems := play(1, script); len(problems) > 0 {
			t.Error(problems)
		}
	})
}
