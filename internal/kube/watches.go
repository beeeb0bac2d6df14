// Package kube holds what every controller shares of talking to the API server: clocks (facts.go), live checks before an act
// (generations.go, stored.go), watches, queues, status writes and Events. Begin at Facts.
package kube

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/resourcestack/autohealer/internal/retry"
)

// Watch is the watch of one kind of objects, with its handlers.
type Watch struct {
	object client.Object
	// Handlers of the informer's events; lost as for [Handlers].
	Handlers func(lost func(error)) toolscache.ResourceEventHandlerFuncs
}

// On watches objects like this one, which the cache has as a T: seen is called for new and changed ones, gone for deleted
// ones ([Handlers]).
func On[T any](example client.Object, seen, gone func(T)) Watch {
	return Watch{example, func(lost func(error)) toolscache.ResourceEventHandlerFuncs { return Handlers(seen, gone, lost) }}
}

// Watches are the informers' watches of one part of the manager.
type Watches struct {
	cache cache.Cache
	// lost takes the first object that the API server went back with.
	lost chan error
}

// NewWatches gives none yet, by the informers of a cache.
func NewWatches(objects cache.Cache) *Watches {
	return &Watches{cache: objects, lost: make(chan error, 1)}
}

// Run adds the watches, waits until all that is there was seen, and runs until ctx ends. It fails when the API server went back to
// an older state ([ErrHistoryLost]), or when run does.
func (w *Watches) Run(ctx context.Context, run func(context.Context) error, all ...Watch) error {
	synced := make([]toolscache.InformerSynced, 0, len(all))
	for _, one := range all {
		registration, err := w.Add(ctx, one)
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // stopped before it began
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(running) }()
	select {
	case err := <-ended:
		return err
	case err := <-w.lost:
		stop()
		return errors.Join(err, <-ended)
	}
}

// Add adds one more, also while they run.
func (w *Watches) Add(ctx context.Context, one Watch) (toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := w.cache.GetInformer(ctx, one.object)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", one.object, err)
	}
	registration, err := informer.AddEventHandler(one.Handlers(func(err error) {
		select {
		case w.lost <- err:
		default: // the first says enough
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", one.object, err)
	}
	return registration, nil
}

// ErrHistoryLost: the API server has an object in an older state than it has shown before, as after a restore of etcd.
// Everything that this process knows may be of a history that never happened, and newer than all events to come.
var ErrHistoryLost = errors.New("the API server went back to an older state; all must be read again")

// Handlers turns an informer's events into calls: seen for what is new or changed, gone for what isn't there any more. An
// object that was deleted and made anew under its name while the watch was away is gone first. lost is called for each object
// that went back to an older state, which isn't passed on: the informer's owner must end the process, so that it
// starts with a clean state.
//
// T has metadata, as meta.Accessor finds them.
func Handlers[T any](seen, gone func(T), lost func(error)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { seen(object.(T)) },
		UpdateFunc: func(before, object any) {
			switch err := compareVersions(before, object); {
			case errors.Is(err, errReplaced):
				gone(before.(T))
			case err != nil:
				lost(err)
				return
			}
			seen(object.(T))
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if o, ok := object.(T); ok {
				gone(o)
			}
		},
	}
}

// errReplaced: the object was deleted, and made anew under its name.
var errReplaced = errors.New("replaced")

// compareVersions compares two observations of one name, the later one second. A watch only ever goes forward, and so does the list
// that follows a watch which broke: it asks for no less than what was seen last. Only an API server that no longer knows
// what was seen last, and is asked for whatever it has, answers with less.
func compareVersions(before, after any) error {
	was, errWas := meta.Accessor(before)
	is, errIs := meta.Accessor(after)
	if err := errors.Join(errWas, errIs); err != nil {
		return err
	}
	if was.GetUID() != is.GetUID() {
		return errReplaced
	}
	order, err := resourceversion.CompareResourceVersion(is.GetResourceVersion(), was.GetResourceVersion())
	if err == nil && order < 0 { // what can't be compared proves nothing
		return fmt.Errorf("%T %s is at resourceVersion %s and was at %s: %w", after, types.NamespacedName{Namespace: is.GetNamespace(), Name: is.GetName()},
			is.GetResourceVersion(), was.GetResourceVersion(), ErrHistoryLost)
	}
	return nil
}

// Queue is a controller's queue.
type Queue = priorityqueue.PriorityQueue[reconcile.Request]

// LowPriority is the priority of periodic reconciliations: every other request comes first, and may starve them. So nothing that
// somebody waits for may have it.
const LowPriority = handler.LowPriority

// NewDelayingQueue is a queue of what is to be done now or later, by a clock if that has timers.
func NewDelayingQueue[T comparable](by clock.PassiveClock) workqueue.TypedDelayingInterface[T] {
	waking, _ := by.(clock.WithTicker)
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Clock: waking})
}

// AddController adds a controller that is fed through its queue by somebody who observes on every replica; attach takes
// the queue once this replica leads. So one set of informer handlers serves leader and standby alike.
func AddController(mgr manager.Manager, name string, r reconcile.Reconciler, workers int, attach func(Queue)) error {
	paced := retry.New(r, retry.Refused)
	c, err := controller.New(name, mgr, controller.Options{
		Reconciler: paced, RateLimiter: paced, MaxConcurrentReconciles: workers, UsePriorityQueue: new(true),
	})
	if err != nil {
		return err
	}
	return c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		attach(q.(Queue))
		return nil
	}))
}

// Requests enqueue reconciliations for an observer that runs on every replica. A standby drops them: a new leader enqueues all
// objects. It is safe for concurrent use; the zero value is a standby's.
type Requests struct{ queue atomic.Pointer[Queue] }

// Attach sends requests to the queue of a replica that became the leader, from now on.
func (r *Requests) Attach(q Queue) { r.queue.Store(&q) }

// Attached says whether this replica leads.
func (r *Requests) Attached() bool { return r.queue.Load() != nil }

// Add enqueues an object after a while.
func (r *Requests) Add(key types.NamespacedName, after time.Duration) {
	if q := r.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: key}, after)
	}
}

// AddAll enqueues many objects at once.
func (r *Requests) AddAll(keys ...types.NamespacedName) {
	for _, key := range keys {
		r.Add(key, 0)
	}
}
