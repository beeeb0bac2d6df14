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
func NewWatchHealth(timeout time.Duration, clk clock.PassiveClock, recovered func()) *WatchHealth {
	return &WatchHealth{timeout: timeout, clock: clk, recovered: recovered}
}

// Err is why the store isn't current; nil where it is, if all was read once.
func (h *WatchHealth) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errLocked()
}

// errLocked needs l.mu.
func (h *WatchHealth) errLocked() error {
	if h.lastError == nil && !h.requestedSince.IsZero() && h.clock.Since(h.requestedSince) > h.timeout {
		return h.timeoutError()
	}
	return h.lastError
}

func (h *WatchHealth) timeoutError() error { return fmt.Errorf("no answer within %s", h.timeout) }

// Observe wraps the lists and watches of a reflector.
func (h *WatchHealth) Observe(by toolscache.ListerWatcher) *toolscache.ListWatch {
	requests := toolscache.ToListerWatcherWithContext(by)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, end := context.WithTimeoutCause(ctx, h.timeout, h.timeoutError())
			defer end()
			h.requested()
			list, err := requests.ListWithContext(ctx, o)
			switch {
			case errors.Is(err, context.DeadlineExceeded): // also of discovery, whose client has its own timeout
				err = h.timeoutError()
			case err != nil && ctx.Err() != nil: // the same text, whatever that ended
				err = context.Cause(ctx)
			}
			h.answered(err, false) // a watch follows; until then nothing shows that the list is stale
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			h.requested()
			w, err := h.openWatch(ctx, requests, o)
			if lists := o.SendInitialEvents != nil && *o.SendInitialEvents; err != nil || !lists {
				h.answered(err, true)
			}
			return w, err
		},
	}
}

// errConnectionEnded is the error of a watch when client-go gave up retrying, and returns an empty watch instead of an error.
var errConnectionEnded = errors.New("connections end before there is an answer")

// openWatch opens a watch, which has no time limit, but must be answered within the timeout.
func (h *WatchHealth) openWatch(ctx context.Context, by toolscache.WatcherWithContext, o metav1.ListOptions) (watch.Interface, error) {
	ctx, end := context.WithCancelCause(ctx)
	late := time.AfterFunc(h.timeout, func() { end(h.timeoutError()) })
	w, err := by.WatchWithContext(ctx, o)
	switch began := late.Stop(); {
	case !began, errors.Is(err, context.DeadlineExceeded):
		if err == nil {
			w.Stop()
		}
		err = h.timeoutError()
	case err != nil:
	case reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()):
		err = errConnectionEnded
	}
	if err != nil {
		end(nil)
		return nil, err
	}
	return h.forward(w, func() { end(nil) }), nil
}

// forward passes on the events of a watch, and observes when it has sent all initial events, and when it ends.
func (h *WatchHealth) forward(w watch.Interface, end func()) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	go func() {
		defer end()
		defer w.Stop()
		defer close(events)
		for {
			select {
			case <-proxy.StopChan():
				return
			case e, more := <-w.ResultChan():
				isLast := !more || e.Type == watch.Error
				if isLast { // before the reflector gets the event: it may retry at once, or much later
					h.ended(e)
				}
				if !more {
					return
				}
				complete := h.receivedAll(e)
				select {
				case <-proxy.StopChan():
					return
				case events <- e:
				}
				if isLast {
					return
				}
				if complete && !h.waitForStore {
					h.answered(nil, true)
				}
			}
		}
	}()
	return proxy
}

// receivedAll says whether this event is the end of a watch's initial events.
func (h *WatchHealth) receivedAll(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	o, err := meta.Accessor(e.Object)
	complete := err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	h.mu.Lock()
	defer h.mu.Unlock()
	h.allReceived = h.allReceived || complete
	return complete
}

// stored is called when all objects are stored. After a list a watch still follows.
func (h *WatchHealth) stored() {
	h.mu.Lock()
	complete := h.allReceived
	h.allReceived = false
	h.mu.Unlock()
	if complete {
		h.answered(nil, true)
	}
}

// ended is called when a watch ends, with an error or without. An error answers a watch that was still sending its initial events.
func (h *WatchHealth) ended(e watch.Event) {
	if isOpening := h.requested(); isOpening && e.Type == watch.Error {
		h.answered(apierrors.FromObject(e.Object), true)
	}
}

// requested is called when a request begins, or a watch ended. It returns whether no answered watch was open before.
func (h *WatchHealth) requested() (already bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if already = !h.requestedSince.IsZero(); !already {
		h.requestedSince = h.clock.Now()
	}
	h.allReceived = false
	return already
}

// answered is called with a request's error, and whether the answer makes the store current.
func (h *WatchHealth) answered(err error, fresh bool) {
	h.mu.Lock()
	recovered := false
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err):
		// The resourceVersion expired, or the server doesn't support WatchList: the reflector sends another request.
	case err != nil:
		h.lastError = stableError(err)
	case fresh:
		recovered, h.lastError, h.requestedSince = h.errLocked() != nil, nil, time.Time{}
	default:
		h.requestedSince = h.clock.Now()
	}
	h.mu.Unlock()
	if recovered {
		h.recovered()
	}
}

// stableError is an error without the URL, whose timeout parameter differs each time, and without the local port of the connection: it is a
// condition's message, which would be written again at each retry.
func stableError(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var lost *net.OpError
	if errors.As(err, &lost) && lost.Source != nil {
		same := *lost
		same.Source = nil
		return &same
	}
	return err
}
