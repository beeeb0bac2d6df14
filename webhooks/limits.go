package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/guard"
)

// What all requests together may hold while they come in and are judged. To judge one takes up to fifty times its bytes.
const (
	// largestBody has two objects of 3 MiB, the most that an API server takes, and 1 MiB for what comes with them.
	largestBody = 7 << 20
	// ordinaryBody has two policies as large as they may be. Of larger ones, with which somebody makes a policy smaller that is too
	// large, there is one at a time.
	ordinaryBody = 2*guard.LargestPolicy + 64<<10
	// bytesOfAll and requestsOfAll are for the ordinary ones, a quarter of each for one address: who uses up theirs leaves the rest to others.
	bytesOfAll, bytesOfOne       = 8 << 20, 2 << 20
	requestsOfAll, requestsOfOne = 256, 64
	// largeBodyTimeout is how long a large body may take before another large one may evict it.
	largeBodyTimeout = time.Second
)

// requestLimiter has a slot for each request. One that finds none free evicts the one whose body has been coming for longest, of the address
// that has most: an API server's body comes at once.
type requestLimiter struct {
	mu    sync.Mutex
	slots []*requestSlot // needs mu, as all below; of the ordinary requests, the oldest first
	large *requestSlot   // of the large one that is there
}

// requestSlot is what a request takes of the limits.
type requestSlot struct {
	address string
	bytes   int64
	started time.Time
	// abortRead ends the reading of the body; nil once that has come.
	abortRead func()
	// evicted says that another request has the slot now.
	evicted bool
}

func (p *requestSlot) evict() {
	p.evicted = true
	p.abortRead()
}

// acquire returns a slot for a request of so many bytes that began now, or nil when there is none.
func (r *requestLimiter) acquire(address string, bytes int64, now time.Time, abortRead func()) *requestSlot {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &requestSlot{address: address, bytes: bytes, started: now, abortRead: abortRead}
	if bytes > ordinaryBody {
		switch {
		case r.large == nil:
		case r.large.abortRead == nil, now.Sub(r.large.started) < largeBodyTimeout: // what is half there isn't thrown away for another that is no better
			return nil
		default:
			r.large.evict()
		}
		r.large = p
		return p
	}
	ofOne, ofAll := func(other *requestSlot) bool { return other.address == address }, func(*requestSlot) bool { return true }
	if !r.evictFor(ofOne, bytes, requestsOfOne, bytesOfOne) || !r.evictFor(ofAll, bytes, requestsOfAll, bytesOfAll) {
		return nil
	}
	r.slots = append(r.slots, p)
	return p
}

// evictFor says whether one more of so many bytes fits in beside these; it evicts others for that, and none where that isn't
// enough.
func (r *requestLimiter) evictFor(of func(*requestSlot) bool, bytes int64, mostRequests int, mostBytes int64) bool {
	fits := func(counts func(*requestSlot) bool) bool {
		requests, sum := 1, bytes
		for _, p := range r.slots {
			if of(p) && counts(p) {
				requests, sum = requests+1, sum+p.bytes
			}
		}
		return requests <= mostRequests && sum <= mostBytes
	}
	if !fits(func(p *requestSlot) bool { return p.abortRead == nil }) {
		return false
	}
	for !fits(func(*requestSlot) bool { return true }) {
		reading := map[string]int{}
		for _, p := range r.slots {
			if p.abortRead != nil && of(p) {
				reading[p.address]++
			}
		}
		most := slices.MaxFunc(slices.Collect(maps.Keys(reading)), func(a, b string) int { return reading[a] - reading[b] })
		i := slices.IndexFunc(r.slots, func(p *requestSlot) bool { return p.abortRead != nil && p.address == most })
		r.slots[i].evict()
		r.slots = slices.Delete(r.slots, i, i+1)
	}
	return true
}

// bodyRead says that the body has come; it is too late when the slot was evicted.
func (r *requestLimiter) bodyRead(p *requestSlot) (inTime bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.abortRead = nil
	return !p.evicted
}

// release frees a slot; it may be called again.
func (r *requestLimiter) release(p *requestSlot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.abortRead = nil
	if r.large == p {
		r.large = nil
	}
	if i := slices.Index(r.slots, p); i >= 0 {
		r.slots = slices.Delete(r.slots, i, i+1)
	}
}

// startedKey is the key of the time when a request began, in its context.
type startedKey struct{}

// limitRequests admits requests within the limits, and reads their bodies. A slot is freed before the answer is sent,
// which takes as long as the client likes.
func limitRequests(handler http.Handler) http.Handler {
	limiter := &requestLimiter{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := clock.RealClock{}.Now()
		size := r.ContentLength
		if size < 0 {
			size = largestBody // it doesn't say
		}
		if size > largestBody {
			refuse(w, r, refusedLarge, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the review has %d bytes; it may have %d", size, largestBody)))
			return
		}
		reading := http.NewResponseController(w)
		if err := reading.SetReadDeadline(started.Add(timeFor(r))); err != nil {
			http.Error(w, "set a deadline for the request's body: "+err.Error(), http.StatusInternalServerError)
			return
		}
		p := limiter.acquire(hostOf(r.RemoteAddr), size, started, func() { _ = reading.SetReadDeadline(started) })
		if p == nil {
			refuse(w, r, refusedBusy, busy())
			return
		}
		defer limiter.release(p)
		body, err := readBody(r, size)
		if !limiter.bodyRead(p) {
			refuse(w, r, refusedBusy, busy())
			return
		}
		if reason, err := unreadable(body, err, timeFor(r)); err != nil {
			limiter.release(p)
			refuse(w, r, reason, err)
			return
		}
		// Else the next request on the connection would find that it has ended.
		if err := reading.SetReadDeadline(time.Time{}); err != nil {
			http.Error(w, "end the deadline for the request's body: "+err.Error(), http.StatusInternalServerError)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), startedKey{}, started))
		r.Body = io.NopCloser(bytes.NewReader(body))
		response := &bufferedResponse{header: w.Header(), code: http.StatusOK}
		handler.ServeHTTP(response, r)
		limiter.release(p)
		w.WriteHeader(response.code)
		_, _ = w.Write(response.body.Bytes()) // whoever doesn't read it has gone
	})
}

// bufferedResponse is a handler's response before it is sent.
type bufferedResponse struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *bufferedResponse) Header() http.Header                { return a.header }
func (a *bufferedResponse) WriteHeader(code int)               { a.code = code }
func (a *bufferedResponse) Write(text []byte) (n int, _ error) { return a.body.Write(text) }

// readBody reads what was announced into memory of that size.
func readBody(r *http.Request, size int64) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(http.MaxBytesReader(nil, r.Body, size))
	}
	body := make([]byte, size)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// unreadable says why a body isn't decoded, nil when it may be. What isn't JSON would be taken for YAML, of which few bytes may stand
// for many.
func unreadable(body []byte, err error, within time.Duration) (reason string, _ *apierrors.StatusError) {
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		return refusedLarge, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the review has more than %d bytes", largestBody))
	case err != nil:
		return refusedSlow, apierrors.NewTimeoutError(fmt.Sprintf("the review did not come whole within %s: %v", within, err), retryAfter)
	case !yaml.IsJSONBuffer(body):
		return refusedOther, apierrors.NewBadRequest("the review is no JSON object")
	}
	return "", nil
}

// retryAfter is in seconds. An API server that gets it asks again by itself, as long as the webhook's timeout lasts; a client whose
// review is undecided, up to ten times.
const retryAfter = 1

func busy() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("the webhook has as many reviews as it can judge; try again in a moment", retryAfter)
}

// refuse answers with a Status, whose message an API server passes on to its client. What is left of the request isn't read.
func refuse(w http.ResponseWriter, r *http.Request, reason string, err *apierrors.StatusError) {
	refused.WithLabelValues(reason).Inc()
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	if r.ProtoMajor == 1 { // of HTTP/2 it would end all other requests' connection, too
		w.Header().Set("Connection", "close")
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // whoever doesn't read it has gone
}
