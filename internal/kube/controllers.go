package kube

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/resourcestack/autohealer/internal/retry"
)

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
