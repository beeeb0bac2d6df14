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
	// largestBody has two objects of 3 MiB, the most that an API server takes, and room for what comes with them.
	largestBody = 7 << 20
	// ordinaryBody has two policies as large as they may be. Of larger ones, with which somebody makes a policy smaller that is too
	// large, there is one at a time.
	ordinaryBody = 2*guard.LargestPolicy + 64<<10
	// bytesOfAll and requestsOfAll are for the ordinary ones, a quarter of each for one address: who fills theirs leaves room to others.
	bytesOfAll, bytesOfOne       = 8 << 20, 2 << 20
	requestsOfAll, requestsOfOne = 256, 64
	// largeTakes is how long a large body may come in peace.
	largeTakes = time.Second
)

// room is what requests share. One that finds no place takes that of the one whose body has been coming for longest, of the address
// that has most: an API server's body comes at once.
type room struct {
	mu     sync.Mutex
	places []*place // needs mu, as all below; of the ordinary requests, the oldest first
	large  *place   // of the large one that is there
}

// place is a request's.
type place struct {
	from  string
	bytes int64
	begun time.Time
	// cut ends the reading of the body; nil once that has come.
	cut func()
	// lost says that another request has the place now.
	lost bool
}

func (p *place) lose() {
	p.lost = true
	p.cut()
}

// take gives a request with so many bytes that began now a place, or nil when there is none.
func (r *room) take(from string, bytes int64, now time.Time, cut func()) *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &place{from: from, bytes: bytes, begun: now, cut: cut}
	if bytes > ordinaryBody {
		switch {
		case r.large == nil:
		case r.large.cut == nil, now.Sub(r.large.begun) < largeTakes: // what is half there isn't thrown away for another that is no better
			return nil
		default:
			r.large.lose()
		}
		r.large = p
		return p
	}
	ofOne, ofAll := func(other *place) bool { return other.from == from }, func(*place) bool { return true }
	if !r.makeRoom(ofOne, bytes, requestsOfOne, bytesOfOne) || !r.makeRoom(ofAll, bytes, requestsOfAll, bytesOfAll) {
		return nil
	}
	r.places = append(r.places, p)
	return p
}

// makeRoom says whether one more of so many bytes fits in beside these; it ends what must go for that, and nothing where that isn't
// enough.
func (r *room) makeRoom(of func(*place) bool, bytes int64, mostRequests int, mostBytes int64) bool {
	fits := func(counts func(*place) bool) bool {
		requests, sum := 1, bytes
		for _, p := range r.places {
			if of(p) && counts(p) {
				requests, sum = requests+1, sum+p.bytes
			}
		}
		return requests <= mostRequests && sum <= mostBytes
	}
	if !fits(func(p *place) bool { return p.cut == nil }) {
		return false
	}
	for !fits(func(*place) bool { return true }) {
		coming := map[string]int{}
		for _, p := range r.places {
			if p.cut != nil && of(p) {
				coming[p.from]++
			}
		}
		most := slices.MaxFunc(slices.Collect(maps.Keys(coming)), func(a, b string) int { return coming[a] - coming[b] })
		i := slices.IndexFunc(r.places, func(p *place) bool { return p.cut != nil && p.from == most })
		r.places[i].lose()
		r.places = slices.Delete(r.places, i, i+1)
	}
	return true
}

// arrived says that the body has come; it is too late for it when another request has the place.
func (r *room) arrived(p *place) (inTime bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.cut = nil
	return !p.lost
}

// leave gives a place back; it may be called again.
func (r *room) leave(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.cut = nil
	if r.large == p {
		r.large = nil
	}
	if i := slices.Index(r.places, p); i >= 0 {
		r.places = slices.Delete(r.places, i, i+1)
	}
}

// begunKey is where a request's context has when it began.
type begunKey struct{}

// bounding takes requests in as there is room for them, and reads their bodies. A place is given back before the answer is sent,
// which takes as long as the client likes.
func bounding(handler http.Handler) http.Handler {
	shared := &room{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := clock.RealClock{}.Now()
		size := r.ContentLength
		if size < 0 {
			size = largestBody // it doesn't say
		}
		if size > largestBody {
			refuse(w, r, refusedLarge, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the review has %d bytes; it may have %d", size, largestBody)))
			return
		}
		reading := http.NewResponseController(w)
		if err := reading.SetReadDeadline(begun.Add(timeFor(r))); err != nil {
			http.Error(w, "set a deadline for the request's body: "+err.Error(), http.StatusInternalServerError)
			return
		}
		p := shared.take(hostOf(r.RemoteAddr), size, begun, func() { _ = reading.SetReadDeadline(begun) })
		if p == nil {
			refuse(w, r, refusedBusy, busy())
			return
		}
		defer shared.leave(p)
		body, err := readBody(r, size)
		if !shared.arrived(p) {
			refuse(w, r, refusedBusy, busy())
			return
		}
		if reason, err := unreadable(body, err, timeFor(r)); err != nil {
			shared.leave(p)
			refuse(w, r, reason, err)
			return
		}
		// Else the next request on the connection would find that it has ended.
		if err := reading.SetReadDeadline(time.Time{}); err != nil {
			http.Error(w, "end the deadline for the request's body: "+err.Error(), http.StatusInternalServerError)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), begunKey{}, begun))
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := &answer{header: w.Header(), code: http.StatusOK}
		handler.ServeHTTP(answer, r)
		shared.leave(p)
		w.WriteHeader(answer.code)
		_, _ = w.Write(answer.body.Bytes()) // whoever doesn't read it has gone
	})
}

// answer is what a handler says, before it is sent.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header                { return a.header }
func (a *answer) WriteHeader(code int)               { a.code = code }
func (a *answer) Write(text []byte) (n int, _ error) { return a.body.Write(text) }

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

// retryAfter is in seconds. An API server that is told so asks again by itself, as long as the webhook's timeout lasts.
const retryAfter = 1

func busy() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("the webhook has as many reviews as it can judge; try again in a moment", retryAfter)
}

// refuse answers with a Status, whose message an API server tells whoever asked it. What is left of the request isn't read.
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
