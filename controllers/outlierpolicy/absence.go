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
	// askers ask the API server, one after the other each.
	askers = 4
	// askWithin bounds one answer.
	askWithin = 10 * time.Second
	// askAgain after an answer that an object is gone: removals of many wait, and are asked about all the while. Those answers are
	// believed for longer, since the asking takes its time too.
	askAgain, believed = 30 * time.Second, 5 * time.Minute
	// askSoon after any other answer, or none.
	askSoon = 5 * time.Second
)

// object is a Service or a route that no informer has.
type object struct {
	kind schema.GroupVersionKind
	types.NamespacedName
}

// absences asks the API server whether objects are really gone: an informer may be behind. Nobody waits for it.
type absences struct {
	live    client.Reader
	clock   clock.PassiveClock
	changed func() // there is news; it must not block
	queue   workqueue.TypedInterface[object]

	mu    sync.Mutex
	known map[object]answer // needs mu
}

// answer is the last one about an object.
type answer struct {
	// asked is when it was asked last, and heard when the API server said something last: zero for never.
	asked, heard time.Time
	gone         bool
	// reported as gone to who removes clusters.
	reported bool
}

// pause before it is asked about again.
func (a answer) pause() time.Duration {
	if a.gone && a.heard.Equal(a.asked) {
		return askAgain
	}
	return askSoon
}

func newAbsences(live client.Reader, by clock.PassiveClock, changed func()) *absences {
	return &absences{live: live, clock: by, changed: changed, queue: workqueue.NewTyped[object](), known: map[object]answer{}}
}

// confirmed gives those of some objects that are gone by the API server's word, and has it asked about the others. What isn't
// among them is forgotten. News of a kind wait until there is an answer about all that is missing of it: removals are held where too
// many come at once, and answers come one by one.
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

// about has the API server asked about objects, where it is time, and gives the kinds of which some answer is missing, or too old to
// be believed. It needs mu.
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

// run asks until the context ends.
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
		log.FromContext(ctx).V(1).Info("Can't tell whether it is gone; Envoys keep its clusters", "kind", o.kind.Kind, "object", o.String(), "reason", err.Error())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.known[o]
	before := last
	last.asked = asked
	if err == nil || gone { // else the last word stands, for as long as it is believed
		last.heard, last.gone, last.reported = asked, gone, last.reported && gone
	}
	a.known[o] = last
	if before.heard.IsZero() && !last.heard.IsZero() || before.gone != last.gone {
		a.changed()
	}
}
