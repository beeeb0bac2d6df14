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
	changed func() // an object is found to be gone
	queue   workqueue.TypedInterface[object]

	mu    sync.Mutex
	known map[object]answer // needs mu
}

// answer is the last one about an object.
type answer struct {
	asked time.Time
	gone  bool
}

func newAbsences(live client.Reader, by clock.PassiveClock, changed func()) *absences {
	return &absences{live: live, clock: by, changed: changed, queue: workqueue.NewTyped[object](), known: map[object]answer{}}
}

// confirmed gives those of some objects that are gone by the API server's word, and has it asked about the others. What isn't
// among them is forgotten.
func (a *absences) confirmed(missing map[object]bool) map[object]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for o := range a.known {
		if !missing[o] {
			delete(a.known, o)
		}
	}
	gone, now := map[object]bool{}, a.clock.Now()
	for o := range missing {
		said, asked := a.known[o]
		pause := askSoon
		if said.gone {
			pause = askAgain
		}
		if age := now.Sub(said.asked); !asked || age >= pause {
			a.queue.Add(o)
		}
		if said.gone && now.Sub(said.asked) < believed {
			gone[o] = true
		}
	}
	return gone
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
	before := a.known[o]
	if err != nil && !gone && before.gone { // the last word stands, for as long as it is believed
		a.mu.Unlock()
		return
	}
	a.known[o] = answer{asked, gone}
	a.mu.Unlock()
	if gone && !before.gone {
		a.changed()
	}
}
