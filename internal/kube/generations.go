package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrSuperseded: the policy is no longer what was admitted.
var ErrSuperseded = errors.New("superseded")

const (
	// maxReadsPerChunk for each chunk of a list of all are asked for one by one; more are listed at once.
	maxReadsPerChunk = 4
	// chunkSize is how many policies API server and manager read in a few milliseconds.
	chunkSize = 500
	// maxChunks bounds that list, as listTimeout does. What lies past 20,000 policies, or wasn't read in time, is asked for one by one
	// for as long as those who ask have time. What isn't reached is unconfirmed, and nobody may act for it.
	maxChunks = 40
	// maxConcurrentReads are how many policies are asked for at a time.
	maxConcurrentReads = 8
	// retryListAfter after a list that failed. Meanwhile policies are asked for one by one, so that those who ask again and again get
	// further even where no list comes to its end in their time.
	retryListAfter = 5 * time.Second
	// answerValidFor is how long an answer is used.
	answerValidFor = time.Second
	// forgetAfter is when answers are dropped that nobody asked for any more.
	forgetAfter = time.Minute
)

// Generations asks the API server, not the cache, whether policies of one kind are still those that were admitted. An informer whose
// watch died silently would go on serving what it last saw. Answers are kept for a moment, so that a storm of acts for
// one policy costs one read, and one for many policies a list.
type Generations struct {
	Reader client.Reader
	Clock  clock.PassiveClock
	// Stored is asked first whether the rules in force are those that are stored. Default: it isn't asked.
	Stored *Stored

	reads singleflight.Group // by UID, and everyPolicy for the list: those who ask at once share a read

	mu       sync.Mutex
	known    map[types.UID]generation // needs mu
	wanted   map[types.UID]time.Time  // needs mu: when a policy was last asked for
	listed   time.Time                // needs mu: when the last list began
	failed   time.Time                // needs mu: when it failed; zero when it didn't
	chunks   int                      // needs mu: of the last list
	prunedAt time.Time                // needs mu: when answers were dropped last
}

// Admission says which generation of a policy was admitted.
type Admission struct {
	Key        types.NamespacedName
	UID        types.UID
	Generation int64
}

type generation struct {
	number int64
	// at is when the API server was asked: what it said is of then, or newer.
	at time.Time
}

// Check gives an error when the policy is gone, being deleted, replaced, or changed since its generation was admitted, and
// when the rules have changed meanwhile.
func (g *Generations) Check(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, uid types.UID, admitted int64) error {
	return g.CheckAll(ctx, kind, []Admission{{key, uid, admitted}})[uid]
}

// CheckAll gives what Check says of many policies, where that is an error, by UID. All are asked about at one moment: a list that begins then answers for
// all of them, however long it takes.
func (g *Generations) CheckAll(ctx context.Context, kind schema.GroupVersionKind, admitted []Admission) map[types.UID]error {
	wrong := map[types.UID]error{}
	if g.Stored != nil {
		if err := g.Stored.Check(ctx); err != nil {
			for _, a := range admitted {
				wrong[a.UID] = err
			}
			return wrong
		}
	}
	requestedAt := g.Clock.Now()
	remaining, list := g.unconfirmed(admitted, requestedAt)
	for list && ctx.Err() == nil {
		_, _ = g.once(ctx, everyPolicy, func(ctx context.Context) any { g.readAll(ctx, kind); return nil }) // what it lacks is asked for by itself
		remaining, list = g.unconfirmed(admitted, requestedAt)
	}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(maxConcurrentReads)
	for _, a := range remaining {
		asking.Go(func() error {
			if err := g.confirm(ctx, kind, a); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong[a.UID] = err
			}
			return nil
		})
	}
	_ = asking.Wait() // each error is its policy's
	return wrong
}

// unconfirmed are those policies of which no answer says that they are what was admitted. An answer that was kept is used only to confirm: one
// that differs is most likely older than the admission. List says that some have no answer, and so many policies were asked for lately that one
// list costs the API server less than a read for each. There is none soon after one that failed, nor where one answered already.
func (g *Generations) unconfirmed(admitted []Admission, requestedAt time.Time) (remaining []Admission, list bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wanted == nil {
		g.wanted = map[types.UID]time.Time{}
	}
	now, unknown := g.Clock.Now(), false
	for _, a := range admitted {
		g.wanted[a.UID] = requestedAt
		known, ok := g.known[a.UID]
		ok = ok && usable(known.at, requestedAt, now)
		if ok && known.number == a.Generation {
			continue
		}
		remaining = append(remaining, a)
		unknown = unknown || !ok
	}
	answered := usable(g.listed, requestedAt, now) || now.Sub(g.failed) < retryListAfter
	return remaining, unknown && !answered && g.manyWanted(now)
}

// usable says whether an answer to what the API server was asked at some time may be used by who asks.
func usable(at, requestedAt, now time.Time) bool {
	return !at.Before(requestedAt) || now.Sub(at) < answerValidFor
}

// manyWanted needs mu.
func (g *Generations) manyWanted(now time.Time) bool {
	lately := 0
	for uid, at := range g.wanted {
		if now.Sub(at) >= 2*answerValidFor {
			delete(g.wanted, uid)
		} else if lately++; lately > maxReadsPerChunk*max(1, g.chunks) {
			return true
		}
	}
	return false
}

// confirm for one policy, by a read of one's own or by that of somebody else. What that says is used as what was kept is: where it began
// before, only to confirm.
func (g *Generations) confirm(ctx context.Context, kind schema.GroupVersionKind, of Admission) error {
	requestedAt := g.Clock.Now()
	for {
		r, err := g.read(ctx, kind, of)
		if err != nil {
			return fmt.Errorf("read %s %s before acting for it: %w", kind.Kind, of.Key, err)
		}
		err = r.confirms(kind, of)
		if !r.at.Before(requestedAt) || err == nil && usable(r.at, requestedAt, g.Clock.Now()) {
			return err
		}
	}
}

// policyRead is what the API server said of one policy.
type policyRead struct {
	at   time.Time // as in generation
	meta metav1.PartialObjectMetadata
	err  error
}

func (g *Generations) read(ctx context.Context, kind schema.GroupVersionKind, of Admission) (*policyRead, error) {
	answer, err := g.once(ctx, string(of.UID), func(ctx context.Context) any {
		r := &policyRead{at: g.Clock.Now()}
		r.meta.SetGroupVersionKind(kind)
		if r.err = g.Reader.Get(ctx, of.Key, &r.meta); r.err == nil && r.meta.UID == of.UID {
			g.store(r.at, &r.meta)
		}
		return r
	})
	if err != nil {
		return nil, err
	}
	return answer.(*policyRead), nil
}

// everyPolicy is what a list is known by among the reads that are on their way; no policy has such a UID.
const everyPolicy = "*"

// once reads, or waits while somebody else has the same read. It gives an error when ctx ended before there was an answer. The read goes on then:
// others may wait for it.
func (g *Generations) once(ctx context.Context, of string, read func(context.Context) any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer := g.reads.DoChan(of, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		return read(ctx), nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-answer:
		return a.Val, nil
	}
}

func (r *policyRead) confirms(kind schema.GroupVersionKind, of Admission) error {
	switch {
	case apierrors.IsNotFound(r.err):
		return fmt.Errorf("%s %s is not found: %w", kind.Kind, of.Key, ErrSuperseded)
	case r.err != nil:
		return fmt.Errorf("read %s %s before acting for it: %w", kind.Kind, of.Key, r.err)
	case r.meta.UID != of.UID || r.meta.DeletionTimestamp != nil:
		return fmt.Errorf("%s %s was deleted or replaced: %w", kind.Kind, of.Key, ErrSuperseded)
	case r.meta.Generation != of.Generation:
		return fmt.Errorf("%s %s is at generation %d, and %d was admitted: %w", kind.Kind, of.Key.Name, r.meta.Generation, of.Generation, ErrSuperseded)
	}
	return nil
}

// readAll reads chunk by chunk. All are of the moment of the first one, which is after the list began: what was read before one fails is true as well.
func (g *Generations) readAll(ctx context.Context, kind schema.GroupVersionKind) {
	began, failed, chunks, next := g.Clock.Now(), time.Time{}, 0, ""
	for chunks == 0 || next != "" && chunks < maxChunks {
		var chunk metav1.PartialObjectMetadataList
		chunk.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := g.Reader.List(ctx, &chunk, client.Limit(chunkSize), client.Continue(next)); err != nil {
			failed = g.Clock.Now()
			break
		}
		for i := range chunk.Items {
			g.store(began, &chunk.Items[i])
		}
		next = chunk.Continue
		chunks++
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed, g.chunks, g.failed = began, chunks, failed
}

// store keeps the API server's answer to a read that began at some time, and from time to time drops answers that nothing used lately.
func (g *Generations) store(requestedAt time.Time, of *metav1.PartialObjectMetadata) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[types.UID]generation{}
	}
	if requestedAt.Sub(g.prunedAt) > forgetAfter {
		g.prunedAt = requestedAt
		for uid, k := range g.known {
			if requestedAt.Sub(k.at) > forgetAfter {
				delete(g.known, uid)
			}
		}
	}
	if of.DeletionTimestamp == nil && !requestedAt.Before(g.known[of.UID].at) {
		g.known[of.UID] = generation{of.Generation, requestedAt}
	}
}
