package probing

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// minPause is the least time between two runs of a task, whatever it returns: a mistake must not become a flood of requests.
	minPause = time.Second
	// slowAfter is for how long a run occupies a worker. One that takes longer waits for a server that doesn't answer: it costs memory, and
	// must not delay the runs of other servers.
	slowAfter = 250 * time.Millisecond
)

// task runs repeatedly, at times that it returns.
type task interface {
	// run runs it once and returns when to run again.
	run(ctx context.Context) time.Time
	// close is called once, when the task will never run again and isn't running.
	close()
}

// scheduler runs tasks when they are due, as many at once as it has workers, not counting those that run for longer than slowAfter. A task
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

// work runs due tasks. When a run takes longer than slowAfter another worker is started in its stead, and this one ends after the run.
func (s *scheduler) work(ctx context.Context) {
	for ctx.Err() == nil {
		key, ended := s.queue.Get()
		if ended {
			return
		}
		s.working.Add(1)
		relief := time.AfterFunc(slowAfter, func() { // by real time: it is about this process, not about when tasks are due
			defer s.working.Done()
			s.work(ctx)
		})
		s.runDue(ctx, key)
		s.queue.Done(key)
		if !relief.Stop() {
			return
		}
		s.working.Done()
	}
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

const (
	// maxListings is how many clusters' leases are listed at once: a chunk takes memory, and its size is the server's.
	maxListings = 16
	// maxSlow is how many more are listed at once of servers whose last list was too slow: they must not occupy all slots.
	maxSlow = 4
	// maxPerNamespace is how many a namespace has at once, however many configs a tenant makes.
	maxPerNamespace = 2
)

// listSlots limit how many listings run at once. They are safe for concurrent use.
type listSlots struct {
	prompt, slow chan struct{}

	mu sync.Mutex
	// byNamespace has how many each namespace has, or waits for; needs mu.
	byNamespace map[string]int
}

func newSlots() *listSlots {
	return &listSlots{prompt: make(chan struct{}, maxListings), slow: make(chan struct{}, maxSlow), byNamespace: map[string]int{}}
}

// acquire waits for a slot until ctx ends; ok is false when there was none, else free must be called.
func (s *listSlots) acquire(ctx context.Context, namespace string, slow bool) (free func(), ok bool) {
	if !s.reserve(namespace) {
		return nil, false
	}
	slots := s.prompt
	if slow {
		slots = s.slow
	}
	select {
	case slots <- struct{}{}:
		return func() {
			<-slots
			s.release(namespace)
		}, true
	case <-ctx.Done():
		s.release(namespace)
		return nil, false
	}
}

func (s *listSlots) reserve(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNamespace[namespace] >= maxPerNamespace {
		return false
	}
	s.byNamespace[namespace]++
	return true
}

func (s *listSlots) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNamespace[namespace]--; s.byNamespace[namespace] == 0 {
		delete(s.byNamespace, namespace)
	}
}
