package probing

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// minPause is the least time between two runs of a task, whatever it asks for: a mistake must not become a flood.
	minPause = time.Second
	// patience is for how long a run counts as work. One that takes longer waits for a server that doesn't answer: that costs
	// memory, and must not keep those waiting whose servers do.
	patience = 250 * time.Millisecond
)

// task runs again and again, at times of its own choice.
type task interface {
	// run does it once and says when to run again.
	run(ctx context.Context) time.Time
	// close is called once, when the task will never run again and isn't running.
	close()
}

// scheduler runs tasks when they are due, as many at once as it has workers; those that run for longer than patience come on
// top, each at most once. A task never runs before its time and never twice at once. When there is more to do than workers
// can, the task that has waited longest goes first.
type scheduler struct {
	clock   clock.Clock
	workers int
	// late hears of each run how long after its time it began.
	late func(time.Duration)

	mu      sync.Mutex
	entries map[Key]*entry // needs mu
	waiting queue          // needs mu
	stopped bool           // needs mu
	wake    chan struct{}
}

func newScheduler(c clock.Clock, workers int, late func(time.Duration)) *scheduler {
	return &scheduler{clock: c, workers: workers, late: late, entries: map[Key]*entry{}, wake: make(chan struct{}, 1)}
}

// add begins to run a task, at first at that time. A task that the key had before is closed.
func (s *scheduler) add(key Key, t task, first time.Time) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		t.close()
		return
	}
	e := s.entries[key]
	if e == nil {
		e = &entry{key: key, index: -1}
		s.entries[key] = e
	}
	old := e.replace(t)
	e.paused = false
	s.restart(e, first)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// hasten runs a task by then, if it would run later.
func (s *scheduler) hasten(key Key, by time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	switch {
	case e == nil || e.paused:
	case e.ours != nil:
		e.atLatest = by
	case by.Before(e.due):
		s.enqueue(e, by)
	}
}

// remove ends a task. A run that is going on is finished.
func (s *scheduler) remove(key Key) {
	s.mu.Lock()
	e := s.entries[key]
	if e == nil {
		s.mu.Unlock()
		return
	}
	old := e.replace(nil)
	if e.ours == nil {
		s.waiting.drop(e)
		delete(s.entries, key)
	}
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
}

// pause keeps a task from running until resume. A run that is going on is finished.
func (s *scheduler) pause(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		e.paused, e.skip = true, e.ours != nil
		s.waiting.drop(e)
	}
}

// resume lets a paused task run at that time.
func (s *scheduler) resume(key Key, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil && e.paused {
		e.paused = false
		s.restart(e, at)
	}
}

// restart needs mu.
func (s *scheduler) restart(e *entry, at time.Time) {
	if e.ours != nil {
		e.restart = at
		return
	}
	s.enqueue(e, at)
}

// enqueue needs mu.
func (s *scheduler) enqueue(e *entry, at time.Time) {
	s.waiting.drop(e)
	e.due = at
	s.waiting.add(e)
	if e.index == 0 { // whoever waits for the earliest waits too long now
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// run hands out tasks until ctx ends, waits for the last of them, and closes all.
func (s *scheduler) run(ctx context.Context) {
	work := make(chan *entry)
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() { s.work(ctx, work, &workers) })
	}
	s.dispatch(ctx, work)
	close(work)
	workers.Wait()
	s.stop()
}

// work runs what it is handed. When a run takes long another worker comes in its place, and it goes after that run.
func (s *scheduler) work(ctx context.Context, work <-chan *entry, workers *sync.WaitGroup) {
	for e := range work {
		relieved := make(chan struct{})
		relief := time.AfterFunc(patience, func() { // by real time: it is about this process, not about when tasks are due
			defer close(relieved)
			workers.Go(func() { s.work(ctx, work, workers) })
		})
		s.runOnce(ctx, e)
		if !relief.Stop() {
			<-relieved
			return
		}
	}
}

func (s *scheduler) dispatch(ctx context.Context, work chan<- *entry) {
	timer := s.clock.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		e, wait := s.next()
		if e != nil {
			select {
			case work <- e:
			case <-ctx.Done():
				s.finish(e, e.ours, e.due)
			}
			continue
		}
		var elapsed <-chan time.Time // never, if nothing waits
		if wait > 0 {
			timer.Reset(wait)
			elapsed = timer.C()
		}
		select {
		case <-elapsed:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// next takes the earliest entry, if it is due; or gives the time until then, 0 if nothing waits.
func (s *scheduler) next() (*entry, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil, 0
	}
	first := s.waiting[0]
	if wait := first.due.Sub(s.clock.Now()); wait > 0 {
		return nil, wait
	}
	s.waiting.drop(first)
	first.ours = first.task
	return first, 0
}

func (s *scheduler) runOnce(ctx context.Context, e *entry) {
	s.mu.Lock()
	t, due, skip := e.ours, e.due, e.skip
	e.atLatest = time.Time{} // who asked for it while it waited for a worker gets this run
	s.mu.Unlock()
	var next time.Time
	if !skip {
		s.late(s.clock.Since(due))
		next = t.run(ctx)
	}
	s.finish(e, t, next)
}

// finish puts an entry back, unless its task was removed or paused meanwhile, and closes the task if it was replaced.
func (s *scheduler) finish(e *entry, ran task, asked time.Time) {
	s.mu.Lock()
	next := e.settle(asked)
	switch {
	case e.task == nil:
		delete(s.entries, e.key)
	case !e.paused:
		if soonest := s.clock.Now().Add(minPause); next.Before(soonest) {
			next = soonest
		}
		s.enqueue(e, next)
	}
	replaced := e.task != ran
	s.mu.Unlock()
	if replaced {
		ran.close()
	}
}

// stop closes all tasks; no worker has one any more.
func (s *scheduler) stop() {
	s.mu.Lock()
	s.stopped = true
	all := s.entries
	s.entries, s.waiting = nil, nil
	s.mu.Unlock()
	for _, e := range all {
		if e.task != nil {
			e.task.close()
		}
	}
}
