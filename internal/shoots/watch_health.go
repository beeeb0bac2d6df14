package shoots

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// WatchHealth says whether what a reflector has of one query to one cluster is current. A reflector itself doesn't report errors: it keeps
// what it has, and asks again. Its store is current while a watch was the last request to be answered. It is safe for concurrent use.
type WatchHealth struct {
	timeout   time.Duration
	clock     clock.PassiveClock
	recovered func()
	// waitForStore: stored is called once what a watch listed can be read.
	waitForStore bool

	mu sync.Mutex
	// lastError is why the last request failed, until a watch is answered; needs mu, as all below.
	lastError error
	// requestedSince is since when no watch is open that was answered, or since the last list, which a watch follows; zero while one is.
	requestedSince time.Time
	// allReceived: a watch has told all that there is, which isn't stored yet.
	allReceived bool
}

// NewWatchHealth makes the link of a query whose requests are to be answered within a time. It calls mended each time that what is known may
// be trusted again.
func NewWatchHealth(within time.Duration, now clock.PassiveClock, mended func()) *WatchHealth {
	return &WatchHealth{timeout: within, clock: now, recovered: mended}
}

// Err is why what is known can't be trusted; nil where it can, if all was read once.
func (l *WatchHealth) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errLocked()
}

// errLocked needs l.mu.
func (l *WatchHealth) errLocked() error {
	if l.lastError == nil && !l.requestedSince.IsZero() && l.clock.Since(l.requestedSince) > l.timeout {
		return l.timeoutError()
	}
	return l.lastError
}

func (l *WatchHealth) timeoutError() error { return fmt.Errorf("no answer within %s", l.timeout) }

// Observe gives the lists and watches of a reflector, which it observes.
func (l *WatchHealth) Observe(by toolscache.ListerWatcher) *toolscache.ListWatch {
	requests := toolscache.ToListerWatcherWithContext(by)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, end := context.WithTimeoutCause(ctx, l.timeout, l.timeoutError())
			defer end()
			l.requested()
			list, err := requests.ListWithContext(ctx, o)
			switch {
			case errors.Is(err, context.DeadlineExceeded): // also while it found out which kinds there are, which counts the time by itself
				err = l.timeoutError()
			case err != nil && ctx.Err() != nil: // the same text, whatever that ended
				err = context.Cause(ctx)
			}
			l.answered(err, false) // a watch follows, and until then nothing tells that the list is old
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			l.requested()
			w, err := l.openWatch(ctx, requests, o)
			if lists := o.SendInitialEvents != nil && *o.SendInitialEvents; err != nil || !lists {
				l.answered(err, true)
			}
			return w, err
		},
	}
}

// errConnectionEnded is what became of a watch when client-go gave up to try again, and says instead that nothing happened.
var errConnectionEnded = errors.New("connections end before there is an answer")

// openWatch begins a watch, which may last, but must begin in time.
func (l *WatchHealth) openWatch(ctx context.Context, by toolscache.WatcherWithContext, o metav1.ListOptions) (watch.Interface, error) {
	ctx, end := context.WithCancelCause(ctx)
	late := time.AfterFunc(l.timeout, func() { end(l.timeoutError()) })
	w, err := by.WatchWithContext(ctx, o)
	switch began := late.Stop(); {
	case !began, errors.Is(err, context.DeadlineExceeded):
		if err == nil {
			w.Stop()
		}
		err = l.timeoutError()
	case err != nil:
	case reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()):
		err = errConnectionEnded
	}
	if err != nil {
		end(nil)
		return nil, err
	}
	return l.forward(w, func() { end(nil) }), nil
}

// forward gives a watch as it is, and learns when it has told all that there is.
func (l *WatchHealth) forward(w watch.Interface, end func()) watch.Interface {
	events := make(chan watch.Event)
	passed := watch.NewProxyWatcher(events)
	go func() {
		defer end()
		defer w.Stop()
		defer close(events)
		for {
			select {
			case <-passed.StopChan():
				return
			case e, more := <-w.ResultChan():
				over := !more || e.Type == watch.Error
				if over { // before the reflector knows, for then it may be answered at once, or ask much later
					l.ended(e)
				}
				if !more {
					return
				}
				whole := l.receivedAll(e)
				select {
				case <-passed.StopChan():
					return
				case events <- e:
				}
				if over {
					return
				}
				if whole && !l.waitForStore {
					l.answered(nil, true)
				}
			}
		}
	}()
	return passed
}

// receivedAll says whether with this event a watch that lists has told all that there is.
func (l *WatchHealth) receivedAll(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	o, err := meta.Accessor(e.Object)
	whole := err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allReceived = l.allReceived || whole
	return whole
}

// stored takes in that all objects are stored. Those of a list a watch follows.
func (l *WatchHealth) stored() {
	l.mu.Lock()
	whole := l.allReceived
	l.allReceived = false
	l.mu.Unlock()
	if whole {
		l.answered(nil, true)
	}
}

// ended takes in that a watch is over, with an error or without. One that was to list is answered by that.
func (l *WatchHealth) ended(e watch.Event) {
	if awaited := l.requested(); awaited && e.Type == watch.Error {
		l.answered(apierrors.FromObject(e.Object), true)
	}
}

// requested takes in that there is no watch that was answered, and gives whether there was none before.
func (l *WatchHealth) requested() (already bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if already = !l.requestedSince.IsZero(); !already {
		l.requestedSince = l.clock.Now()
	}
	l.allReceived = false
	return already
}

// answered takes in what came of a request, and whether the answer says that what is known is what there is.
func (l *WatchHealth) answered(err error, fresh bool) {
	l.mu.Lock()
	mended := false
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err):
		// A version isn't kept any more, or watches can't list: the reflector asks in another way.
	case err != nil:
		l.lastError = stableError(err)
	case fresh:
		mended, l.lastError, l.requestedSince = l.errLocked() != nil, nil, time.Time{}
	default:
		l.requestedSince = l.clock.Now()
	}
	l.mu.Unlock()
	if mended {
		l.recovered()
	}
}

// stableError is an error without the URL, which has another time-out each time, and without the port that a connection had here: conditions
// say it, and would be written anew at each try.
func stableError(err error) error {
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err
	}
	var lost *net.OpError
	if errors.As(err, &lost) && lost.Source != nil {
		same := *lost
		same.Source = nil
		return &same
	}
	return err
}
