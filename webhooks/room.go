package webhooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/guard"
)

// What all requests together may hold while they come in and are judged. What it takes to judge one is up to a hundred times its
// bytes.
const (
	// largestBody has two objects of 3 MiB, the most that an API server takes, and room for what comes with them.
	largestBody = 7 << 20
	// ordinaryBody has two policies as large as they may be. Of larger ones, with which somebody makes a policy smaller that is too
	// large, there is one at a time.
	ordinaryBody = 2*guard.LargestPolicy + 64<<10
	// bytesOfAll and requestsOfAll are for the ordinary ones, a quarter of each for one address: who fills theirs leaves room to others.
	bytesOfAll, bytesOfOne       = 16 << 20, 4 << 20
	requestsOfAll, requestsOfOne = 256, 64
)

// room is what requests share. The one whose body has been coming for longest gives up its place to one that finds none: an API
// server's body comes at once.
type room struct {
	mu     sync.Mutex
	places []*place // needs mu, as all below; of the ordinary requests, the oldest first
	large  bool     // a large one is there
}

// place is a request's.
type place struct {
	from  string
	bytes int64
	// cut ends the reading of the body; nil once that has come.
	cut func()
	// lost says that another request has the place now.
	lost bool
}

// take gives a request with so many bytes a place, or nil when there is none.
func (r *room) take(from string, bytes int64, cut func()) *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &place{from: from, bytes: bytes, cut: cut}
	if bytes > ordinaryBody {
		if r.large {
			return nil
		}
		r.large = true
		return p
	}
	isAll, isOne := func(*place) bool { return true }, func(other *place) bool { return other.from == from }
	for r.full(isOne, bytes, requestsOfOne, bytesOfOne) {
		if !r.makeRoom(isOne) {
			return nil
		}
	}
	for r.full(isAll, bytes, requestsOfAll, bytesOfAll) {
		if !r.makeRoom(isAll) {
			return nil
		}
	}
	r.places = append(r.places, p)
	return p
}

// full says whether one more of so many bytes is too much for these.
func (r *room) full(of func(*place) bool, more int64, mostRequests int, mostBytes int64) bool {
	requests := 1
	for _, p := range r.places {
		if of(p) {
			requests++
			more += p.bytes
		}
	}
	return requests > mostRequests || more > mostBytes
}

// makeRoom ends the oldest of these whose body hasn't come yet.
func (r *room) makeRoom(of func(*place) bool) bool {
	for i, p := range r.places {
		if p.cut != nil && of(p) {
			p.lost = true
			p.cut()
			r.places = append(r.places[:i], r.places[i+1:]...)
			return true
		}
	}
	return false
}

// arrived says that the body has come; it is too late for it when another request has the place.
func (r *room) arrived(p *place) (inTime bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.cut = nil
	return !p.lost
}

func (r *room) leave(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.cut = nil
	if p.bytes > ordinaryBody {
		r.large = false
		return
	}
	for i, other := range r.places {
		if other == p {
			r.places = append(r.places[:i], r.places[i+1:]...)
			return
		}
	}
}

// bounding takes requests in as there is room for them, and reads their bodies.
func bounding(handler http.Handler) http.Handler {
	shared := &room{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size < 0 {
			size = largestBody // it doesn't say
		}
		if size > largestBody {
			refuse(w, refusedLarge, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the review has %d bytes; it may have %d", size, largestBody)))
			return
		}
		body := http.NewResponseController(w)
		if err := body.SetReadDeadline(clock.RealClock{}.Now().Add(timeFor(r))); err != nil {
			http.Error(w, "set a deadline for the request's body: "+err.Error(), http.StatusInternalServerError)
			return
		}
		p := shared.take(hostOf(r.RemoteAddr), size, func() { _ = body.SetReadDeadline(clock.RealClock{}.Now()) })
		if p == nil {
			refuse(w, refusedBusy, busy())
			return
		}
		defer shared.leave(p)
		text, err := readBody(r, size)
		inTime := shared.arrived(p)
		switch tooLarge := (*http.MaxBytesError)(nil); {
		case !inTime:
			refuse(w, refusedBusy, busy())
		case errors.As(err, &tooLarge):
			refuse(w, refusedLarge, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the review has more than %d bytes", largestBody)))
		case err != nil:
			refuse(w, refusedSlow, apierrors.NewTimeoutError(fmt.Sprintf("the review did not come whole within %s: %v", timeFor(r), err), retryAfter))
		default:
			r.Body = io.NopCloser(bytes.NewReader(text))
			handler.ServeHTTP(w, r)
		}
	})
}

// readBody reads what was announced into memory of that size.
func readBody(r *http.Request, size int64) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(http.MaxBytesReader(nil, r.Body, size))
	}
	text := make([]byte, size)
	_, err := io.ReadFull(r.Body, text)
	return text, err
}

// retryAfter is in seconds. An API server that is told so asks again by itself, as long as the webhook's timeout lasts.
const retryAfter = 1

func busy() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("the webhook has as many reviews as it can judge; try again in a moment", retryAfter)
}

// refuse answers with a Status, whose message an API server tells whoever asked it.
func refuse(w http.ResponseWriter, reason string, err *apierrors.StatusError) {
	refused.WithLabelValues(reason).Inc()
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // whoever doesn't read it has gone
}
