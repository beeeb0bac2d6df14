package probing

import (
	"context"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/metric"
)

const (
	// minPause is the least time between two runs of a task, whatever it returns: a mistake must not become a flood of requests.
	minPause = time.Second
	// slowAfter is for how long a run occupies a worker, and up to half as long again. One that takes longer, though the processors aren't
	// busy, waits for a server that doesn't answer: it costs memory, and must not delay the runs of other servers.
	slowAfter = 250 * time.Millisecond
	// busyAfter is for how long a goroutine waits for a processor where runs take long because of that.
	busyAfter = 20 * time.Millisecond
)

// task runs repeatedly, at times that it returns.
type task interface {
	// run runs it once and returns when to run again.
	run(ctx context.Context) time.Time
	// close is called once, when the task will never run again and isn't running.
	close()
}

// scheduler runs tasks when they are due, as many at once as it has workers, not counting slow runs, which outlasts tells. A task
// never runs before its time, and never two at once of a key. When workers are scarce, the task that has waited longest runs first.
type scheduler struct {
	clock   clock.WithTicker
	workers int
	// observeLateness is called for each run with how long after its time it began.
	observeLateness func(time.Duration)
	// queue has the keys of tasks, due at the times of the tasks or before. It gives a key to one worker at a time.
	queue   workqueue.TypedDelayingInterface[Key]
	working sync.WaitGroup

	mu      sync.Mutex
	entries map[Key]*entry // needs mu
}

// entry is a task. All of it needs mu.
type entry struct {
	task task
	// due is when to run next. While it runs that is the time that runBy set, else zero: then the run returns the time.
	due     time.Time
	running bool
}

func newScheduler(c clock.WithTicker, workers int, late func(time.Duration)) *scheduler {
	return &scheduler{
		clock: c, workers: workers, observeLateness: late, entries: map[Key]*entry{},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Key]{Clock: c}),
	}
}

// add adds a task for a key that has none, with the time of its first run.
func (s *scheduler) add(key Key, t task, first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[key] = &entry{task: t}
	s.runBy(key, first)
}

// task is the one of a key, nil when there is none.
func (s *scheduler) task(key Key) task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		return e.task
	}
	return nil
}

// advance moves a task's next run to that time, if it would be later.
func (s *scheduler) advance(key Key, by time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runBy(key, by)
}

// runBy needs mu.
func (s *scheduler) runBy(key Key, by time.Time) {
	if e := s.entries[key]; e != nil && (e.due.IsZero() || by.Before(e.due)) {
		e.due = by
		s.queue.AddAfter(key, by.Sub(s.clock.Now()))
	}
}

// remove removes a task. A run in progress is finished.
func (s *scheduler) remove(key Key) {
	s.mu.Lock()
	e := s.entries[key]
	delete(s.entries, key)
	closes := e != nil && !e.running
	s.mu.Unlock()
	if closes {
		e.task.close()
	}
}

// run runs tasks until ctx ends, waits for the last of them, and closes all.
func (s *scheduler) run(ctx context.Context) {
	for range s.workers {
		s.working.Go(func() { s.work(ctx) })
	}
	<-ctx.Done()
	s.queue.ShutDown()
	s.working.Wait()
	s.mu.Lock()
	remaining := slices.Collect(maps.Keys(s.entries))
	s.mu.Unlock()
	for _, key := range remaining {
		s.remove(key)
	}
}

// work runs due tasks. When a run is slow another worker is started in its stead, and this one ends after the run.
func (s *scheduler) work(ctx context.Context) {
	for ctx.Err() == nil {
		key, ended := s.queue.Get()
		if ended {
			return
		}
		over := make(chan struct{})
		var decided atomic.Bool // whichever is first: the run is over, or slow
		s.working.Go(func() {
			if outlasts(over) && decided.CompareAndSwap(false, true) {
				s.work(ctx)
			}
		})
		s.runDue(ctx, key)
		s.queue.Done(key)
		if close(over); !decided.CompareAndSwap(false, true) {
			return
		}
	}
}

// outlasts waits until a run is over, or is slow though the processors aren't busy. It goes by real time: it is about this process, not about
// when tasks are due.
func outlasts(over <-chan struct{}) (slow bool) {
	for {
		after := wait.Jitter(slowAfter, .5) // of runs that began together not all look at once, and count each other
		due := clock.RealClock{}.Now().Add(after)
		select {
		case <-over:
			return false
		case <-time.After(after):
			if !processorsBusy(due) {
				return true
			}
		}
	}
}

// processorsBusy: goroutines wait for a processor, more than may run at once, or the caller, which was due, for long: then other processes
// have the processors. Runs take long because of that, and not because of servers. More runs at once would make all of them last
// longer, until none ends within its timeout.
func processorsBusy(due time.Time) bool {
	if (clock.RealClock{}).Since(due) > busyAfter {
		return true
	}
	waiting := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	metrics.Read(waiting)
	return waiting[0].Value.Uint64() > uint64(runtime.GOMAXPROCS(0))
}

// runDue runs the task of a key once, if there is one that is due.
func (s *scheduler) runDue(ctx context.Context, key Key) {
	e := s.begin(key)
	if e == nil {
		return
	}
	if next := e.task.run(ctx); !s.end(key, e, next) {
		e.task.close()
	}
}

func (s *scheduler) begin(key Key) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, now := s.entries[key], s.clock.Now()
	if e == nil {
		return nil
	}
	if now.Before(e.due) {
		s.queue.AddAfter(key, e.due.Sub(now))
		return nil
	}
	s.observeLateness(now.Sub(e.due))
	e.due, e.running = time.Time{}, true
	return e
}

// end schedules the next run, and says whether the task stays: it wasn't removed during the run.
func (s *scheduler) end(key Key, e *entry, next time.Time) (stays bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.running = false
	if s.entries[key] != e {
		return false
	}
	if e.due.IsZero() || next.Before(e.due) {
		e.due = next
	}
	now := s.clock.Now()
	if earliest := now.Add(minPause); e.due.Before(earliest) {
		e.due = earliest
	}
	s.queue.AddAfter(key, e.due.Sub(now))
	return true
}

// Labels are bounded: sides and classes, never targets.
var (
	latenessSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "autohealer_probe_lateness_seconds",
		Help:    "How long after its time a run of probes began. More than a second means too few workers or processors.",
		Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60},
	})
	probeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "autohealer_probe_duration_seconds",
		Help:    "How long probes took, by side (internal, external, leases) and result (success, failure, transient, unknown).",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"side", "result"})
	outcomesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_probe_outcomes_total",
		Help: "Outcomes of probes, by side (internal, external, leases) and class, such as OK, Timeout or TLS.",
	}, []string{"side", "class"})
	witnessUp = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "autohealer_witness_up",
		Help: "Whether a witness of a Guardrail answered the last check, once a minute: 1 or 0.",
	}, []string{"guardrail", "witness"})
	witnessQueries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "autohealer_witness_queries_total",
		Help: "Queries of the witnesses since external probes failed, by result (vouched, not_vouched).",
	}, []string{"result"})
)

// RegisterMetrics adds the metrics to the manager's registry; a second manager in one process shares them.
func RegisterMetrics() error {
	metric.AtZero(witnessQueries, []string{"vouched", "not_vouched"})
	return metric.Register(latenessSeconds, probeSeconds, outcomesTotal, witnessUp, witnessQueries)
}

func observeLateness(late time.Duration) { latenessSeconds.Observe(late.Seconds()) }

func observeProbe(side string, outcome probe.Outcome, took time.Duration) {
	probeSeconds.WithLabelValues(side, outcome.Result().String()).Observe(took.Seconds())
	outcomesTotal.WithLabelValues(side, string(outcome.Class)).Inc()
}
