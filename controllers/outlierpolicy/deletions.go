package outlierpolicy

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// confirmWorkers read from the API server concurrently.
	confirmWorkers = 4
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// rereadInterval is when an object that is gone is read again, as long as its removal is delayed. An answer is valid for answerTTL,
	// which is longer, since reading many objects takes time too.
	rereadInterval, answerTTL = 30 * time.Second, 5 * time.Minute
	// unansweredRetry is when an object is read again after any other answer, or none.
	unansweredRetry = 5 * time.Second
)

// objectRef is a Service or a route that no informer has.
type objectRef struct {
	kind schema.GroupVersionKind
	types.NamespacedName
}

// deletionConfirmer reads objects live to confirm that they are deleted, since an informer may be stale. It doesn't block its callers.
type deletionConfirmer struct {
	live    client.Reader
	clock   clock.PassiveClock
	changed func() // an object's state changed; it must not block
	queue   workqueue.TypedInterface[objectRef]

	mu    sync.Mutex
	reads map[objectRef]liveRead // needs mu
}

// liveRead is the last live read of an object.
type liveRead struct {
	// readAt is when the object was read last, and answeredAt when the API server answered last: zero for never.
	readAt, answeredAt time.Time
	gone               bool
	// reported: confirmedGone has returned it.
	reported bool
}

// nextReadAfter is how long after readAt the object is read again.
func (a liveRead) nextReadAfter() time.Duration {
	if a.gone && a.answeredAt.Equal(a.readAt) {
		return rereadInterval
	}
	return unansweredRetry
}

func newDeletionConfirmer(live client.Reader, clk clock.PassiveClock, changed func()) *deletionConfirmer {
	return &deletionConfirmer{live: live, clock: clk, changed: changed, queue: workqueue.NewTyped[objectRef](), reads: map[objectRef]liveRead{}}
}

// confirmedGone returns those of the missing objects that the API server doesn't have, and has the others read. Reads of objects that
// aren't missing are dropped. Newly confirmed objects of a kind are returned once all missing objects of that kind have an answer: too
// many removals at once are delayed, and answers come one by one, so that they must be counted together.
func (c *deletionConfirmer) confirmedGone(missing map[objectRef]bool) map[objectRef]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.reads {
		if !missing[o] {
			delete(c.reads, o)
		}
	}
	unanswered := c.enqueue(missing)
	gone := map[objectRef]bool{}
	for o, last := range c.reads {
		if last.gone && (last.reported || !unanswered[o.kind]) {
			last.reported = true
			c.reads[o] = last
			gone[o] = true
		}
	}
	return gone
}

// enqueue has the objects read that are due, and returns the kinds of which an object has no answer, or an expired one. It needs mu.
func (c *deletionConfirmer) enqueue(missing map[objectRef]bool) (unanswered map[schema.GroupVersionKind]bool) {
	now := c.clock.Now()
	unanswered = map[schema.GroupVersionKind]bool{}
	for o := range missing {
		last, wasRead := c.reads[o]
		if !wasRead || now.Sub(last.readAt) >= last.nextReadAfter() {
			c.queue.Add(o)
		}
		if !last.answeredAt.IsZero() && now.Sub(last.answeredAt) < answerTTL {
			continue
		}
		unanswered[o.kind] = true
		if wasRead {
			c.reads[o] = liveRead{readAt: last.readAt}
		}
	}
	return unanswered
}

// run reads queued objects until the context ends.
func (c *deletionConfirmer) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	for range confirmWorkers {
		running.Go(func() {
			for {
				o, stopping := c.queue.Get()
				if stopping {
					return
				}
				c.read(ctx, o)
				c.queue.Done(o)
			}
		})
	}
	running.Wait()
}

func (c *deletionConfirmer) read(ctx context.Context, o objectRef) {
	startedAt := c.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(o.kind)
	err := c.live.Get(ctx, o.NamespacedName, &meta)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		log.FromContext(ctx).V(1).Info("Can't confirm that an object is deleted; Envoys keep its clusters", "kind", o.kind.Kind, "object", o.String(), "reason", err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.reads[o]
	before := last
	last.readAt = startedAt
	if err == nil || gone { // else the last answer stays, until it expires
		last.answeredAt, last.gone, last.reported = startedAt, gone, last.reported && gone
	}
	c.reads[o] = last
	if before.answeredAt.IsZero() && !last.answeredAt.IsZero() || before.gone != last.gone {
		c.changed()
	}
}
