package testbed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds each wait; a machine with much else to do still does fifty objects a second.
const patience = 5 * time.Minute

// Watch follows objects as others in the cluster would, and knows when the state of each, as far as it is measured, became visible
// there. It runs during every measurement, the reference's too, so that it costs all the same.
type Watch[O client.Object, S comparable] struct {
	mu      sync.Mutex
	objects map[string]*Seen[O, S] // needs mu; by name
	states  map[S]int              // needs mu: how many objects are in each; a new object was in the zero state before
	last    time.Time              // needs mu: when a state changed
	changed chan struct{}          // needs mu: closed when a state changes
}

// Seen is an object as the watch showed it last.
type Seen[O client.Object, S comparable] struct {
	Object O
	State  S
	// At is when the state changed last.
	At time.Time
}

// StartWatch watches until ctx ends, and returns when the watch has begun.
func StartWatch[O client.Object, S comparable](ctx context.Context, informer cache.SharedIndexInformer, state func(O) S) (*Watch[O, S], error) {
	w := &Watch[O, S]{objects: map[string]*Seen[O, S]{}, states: map[S]int{}, changed: make(chan struct{})}
	see := func(object any) { w.see(time.Now(), object.(O), state(object.(O))) }
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }})
	if err != nil {
		return nil, fmt.Errorf("watch objects: %w", err)
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		return nil, fmt.Errorf("watch objects: %w", ctx.Err())
	}
	return w, nil
}

func (w *Watch[O, S]) see(now time.Time, object O, state S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[object.GetName()]
	if o == nil {
		o = &Seen[O, S]{}
		w.objects[object.GetName()] = o
		w.states[o.State]++
	}
	o.Object = object
	if o.State == state {
		return
	}
	w.states[o.State]--
	w.states[state]++
	o.State, o.At, w.last = state, now, now
	close(w.changed)
	w.changed = make(chan struct{})
}

// Get is an object as the watch showed it last.
func (w *Watch[O, S]) Get(name string) Seen[O, S] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[name]; o != nil {
		return *o
	}
	return Seen[O, S]{}
}

// Await waits until exactly n objects are in a state, and gives the time at which the last one changed.
func (w *Watch[O, S]) Await(ctx context.Context, state S, n int) (time.Time, error) {
	return w.await(ctx, func() bool { return w.states[state] == n })
}

// AwaitEach waits until the first n objects are as they should be.
func (w *Watch[O, S]) AwaitEach(ctx context.Context, n int, name func(i int) string, right func(i int, state S) bool) (time.Time, error) {
	return w.await(ctx, func() bool {
		for i := range n {
			if o := w.objects[name(i)]; o == nil || !right(i, o.State) {
				return false
			}
		}
		return true
	})
}

// await gives the time of the last change once `holds`, which may look at w.
func (w *Watch[O, S]) await(ctx context.Context, holds func() bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		held, changed, last := holds(), w.changed, w.last
		w.mu.Unlock()
		if held {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Time{}, fmt.Errorf("wait for a watch to show a change, with so many objects in each state: %v: %w", w.states, ctx.Err())
		}
	}
}
