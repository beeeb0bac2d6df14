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

// WatchHealth says whether the store of a reflector of one query to one cluster is current. A reflector itself doesn't report errors: it keeps
// what it has, and retries. Its store is current while a watch was the last request to be answered. It is safe for concurrent use.
type WatchHealth struct {
	timeout   time.Duration
	clock     clock.PassiveClock
	recovered func()
	// waitForStore: stored is called once what a watch listed can be read.
	waitForStore bool

	mu sync.Mutex
	// lastError is why the last request failed, until a watch is answered; needs mu, as all below.
	lastError error
	// requestedSince is since when no answered watch has been open, or the time of the last list, which a watch follows; zero while one is.
	requestedSince time.Time
	// allReceived: a watch has sent all initial events, which aren't stored yet.
	allReceived bool
}

// NewWatchHealth makes one for a query whose requests must be answered within a timeout. It calls recovered each time that the store is
// current again.
func NewWatchHealth(within time.Duration, now clock.PassiveClock, mended func()) *WatchHealth {
	return &WatchHealth{timeout: within, clock: now, recovered: mended}
}

// Err is why the store isn't current; nil where it is, if all was read once.
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

// Observe wraps the lists and watches of a reflector.
func (l *WatchHealth) Observe(by toolscache.ListerWatcher) *toolscache.ListWatch {
	requests := toolscache.ToListerWatcherWithContext(by)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, end := context.WithTimeoutCause(ctx, l.timeout, l.timeoutError())
			defer end()
			l.requested()
			list, err := requests.ListWithContext(ctx, o)
			switch {
			case errors.Is(err, context.DeadlineExceeded): // also of discovery, whose client has its own timeout
				err = l.timeoutError()
			case err != nil && ctx.Err() != nil: // the same text, whatever that ended
				err = context.Cause(ctx)
			}
			l.answered(err, false) // a watch follows; until then nothing shows that the list is stale
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

// errConnectionEnded is the error of a watch when client-go gave up retrying, and returns an empty watch instead of an error.
var errConnectionEnded = errors.New("connections end before there is an answer")

// openWatch opens a watch, which has no time limit, but must be answered within the timeout.
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

// forward passes on the events of a watch, and observes when it has sent all initial events, and when it ends.
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
				if over { // before the reflector gets the event: it may retry at once, or much later
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

// receivedAll says whether this event is the end of a watch's initial events.
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

// stored is called when all objects are stored. After a list a watch still follows.
func (l *WatchHealth) stored() {
	l.mu.Lock()
	whole := l.allReceived
	l.allReceived = false
	l.mu.Unlock()
	if whole {
		l.answered(nil, true)
	}
}

// ended is called when a watch ends, with an error or without. An error answers a watch that was still sending its initial events.
func (l *WatchHealth) ended(e watch.Event) {
	if awaited := l.requested(); awaited && e.Type == watch.Error {
		l.answered(apierrors.FromObject(e.Object), true)
	}
}

// requested is called when a request begins, or a watch ended. It returns whether no answered watch was open before.
func (l *WatchHealth) requested() (already bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if already = !l.requestedSince.IsZero(); !already {
		l.requestedSince = l.clock.Now()
	}
	l.allReceived = false
	return already
}

// answered is called with a request's error, and whether the answer makes the store current.
func (l *WatchHealth) answered(err error, fresh bool) {
	l.mu.Lock()
	mended := false
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err):
		// The resourceVersion expired, or the server doesn't support WatchList: the reflector sends another request.
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

// stableError is an error without the URL, whose timeout parameter differs each time, and without the local port of the connection: it is a
// condition's message, which would be written again at each retry.
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
