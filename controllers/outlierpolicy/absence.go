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
	askers = 4
	// requestTimeout bounds one request.
	askWithin = 10 * time.Second
	// rereadInterval is when an object that is gone is read again, as long as its removal is delayed. An answer is valid for answerTTL,
	// which is longer, since reading many objects takes time too.
	askAgain, believed = 30 * time.Second, 5 * time.Minute
	// unansweredRetry is when an object is read again after any other answer, or none.
	askSoon = 5 * time.Second
)

// objectRef is a Service or a route that no informer has.
type object struct {
	kind schema.GroupVersionKind
	types.NamespacedName
}

// deletionConfirmer reads objects live to confirm that they are deleted, since an informer may be stale. It doesn't block its callers.
type absences struct {
	live    client.Reader
	clock   clock.PassiveClock
	changed func() // an object's state changed; it must not block
	queue   workqueue.TypedInterface[object]

	mu    sync.Mutex
	known map[object]answer // needs mu
}

// liveRead is the last live read of an object.
type answer struct {
	// readAt is when the object was read last, and answeredAt when the API server answered last: zero for never.
	asked, heard time.Time
	gone         bool
	// reported: confirmedGone has returned it.
	reported bool
}

// nextReadAfter is how long after readAt the object is read again.
func (a answer) pause() time.Duration {
	if a.gone && a.heard.Equal(a.asked) {
		return askAgain
	}
	return askSoon
}

func newAbsences(live client.Reader, by clock.PassiveClock, changed func()) *absences {
	return &absences{live: live, clock: by, changed: changed, queue: workqueue.NewTyped[object](), known: map[object]answer{}}
}

// confirmedGone returns those of the missing objects that the API server doesn't have, and has the others read. Reads of objects that
// aren't missing are dropped. Newly confirmed objects of a kind are returned once all missing objects of that kind have an answer: too
// many removals at once are delayed, and answers come one by one, so that they must be counted together.
func (a *absences) confirmed(missing map[object]bool) map[object]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for o := range a.known {
		if !missing[o] {
			delete(a.known, o)
		}
	}
	waits := a.about(missing)
	gone := map[object]bool{}
	for o, last := range a.known {
		if last.gone && (last.reported || !waits[o.kind]) {
			last.reported = true
			a.known[o] = last
			gone[o] = true
		}
	}
	return gone
}

// enqueue has the objects read that are due, and returns the kinds of which an object has no answer, or an expired one. It needs mu.
func (a *absences) about(missing map[object]bool) (waits map[schema.GroupVersionKind]bool) {
	now := a.clock.Now()
	waits = map[schema.GroupVersionKind]bool{}
	for o := range missing {
		last, asked := a.known[o]
		if !asked || now.Sub(last.asked) >= last.pause() {
			a.queue.Add(o)
		}
		if !last.heard.IsZero() && now.Sub(last.heard) < believed {
			continue
		}
		waits[o.kind] = true
		if asked {
			a.known[o] = answer{asked: last.asked}
		}
	}
	return waits
}

// run reads queued objects until the context ends.
func (a *absences) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, a.queue.ShutDown)()
	for range askers {
		running.Go(func() {
			for {
				o, stopping := a.queue.Get()
				if stopping {
					return
				}
				a.ask(ctx, o)
				a.queue.Done(o)
			}
		})
	}
	running.Wait()
}

func (a *absences) ask(ctx context.Context, o object) {
	asked := a.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(o.kind)
	err := a.live.Get(ctx, o.NamespacedName, &meta)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		log.FromContext(ctx).V(1).Info("Can't confirm that an object is deleted; Envoys keep its clusters", "kind", o.kind.Kind, "object", o.String(), "reason", err.Error())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.known[o]
	before := last
	last.asked = asked
	if err == nil || gone { // else the last answer stays, until it expires
		last.heard, last.gone, last.reported = asked, gone, last.reported && gone
	}
	a.known[o] = last
	if before.heard.IsZero() && !last.heard.IsZero() || before.gone != last.gone {
		a.changed()
	}
}
