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

// Behind is the priority of looks that nothing asks for but time: whatever else asks comes first, without end if there is no end of
// it. So nothing that somebody waits for may have it.
const Behind = handler.LowPriority

// NewDelayingQueue is a queue of what is to be done now or later, by a clock if that can wake somebody.
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

// Requests are looks that somebody who observes on every replica asks for. A replica that doesn't lead drops them: who becomes the
// leader looks at all. It is safe for concurrent use; the zero value is of a replica that doesn't lead.
type Requests struct{ queue atomic.Pointer[Queue] }

// Attach hands requests to the queue of a replica that became the leader, from now on.
func (r *Requests) Attach(q Queue) { r.queue.Store(&q) }

// Attached says whether this replica leads.
func (r *Requests) Attached() bool { return r.queue.Load() != nil }

// Add asks for a look at an object after a while.
func (r *Requests) Add(key types.NamespacedName, after time.Duration) {
	if q := r.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: key}, after)
	}
}

// AddAll asks for looks at many objects at once.
func (r *Requests) AddAll(keys ...types.NamespacedName) {
	for _, key := range keys {
		r.Add(key, 0)
	}
}
