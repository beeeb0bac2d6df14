package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	// fewPolicies are asked for one by one; more are listed at once.
	fewPolicies = 4
	// mostPolicies bounds that list to what API server and manager read in a few milliseconds.
	mostPolicies = 500
)

// Generations asks the API server, not the cache, whether a policy is still the one that was admitted. An informer whose
// watch died silently would go on serving what it last saw. Answers are kept for a moment, so that a storm of acts for
// one policy costs one read, and one for many policies a list.
type Generations struct {
	Reader client.Reader
	Clock  clock.PassiveClock
	// Stored is asked first whether the rules in force are those that are stored. Default: it isn't asked.
	Stored *Stored
	// Keep is how long an answer is used; one second when zero.
	Keep time.Duration

	mu     sync.Mutex
	known  map[types.UID]generation // needs mu
	wanted map[types.UID]time.Time  // needs mu: when a policy was last asked for

	reading sync.Mutex // held while all are read
	failed  time.Time  // needs reading: when that failed last
}

type generation struct {
	number int64
	at     time.Time
}

// Check gives an error when the policy is gone, being deleted, replaced, or changed since its generation was admitted, and
// when the rules have changed meanwhile.
func (g *Generations) Check(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, uid types.UID, admitted int64) error {
	if g.Stored != nil {
		if err := g.Stored.Check(ctx); err != nil {
			return err
		}
	}
	current, err := g.current(ctx, kind, key, uid, admitted)
	if err != nil {
		return err
	}
	if current != admitted {
		return fmt.Errorf("%s %s is at generation %d, and %d was admitted: %w", kind.Kind, key.Name, current, admitted, ErrSuperseded)
	}
	return nil
}

// current is the policy's generation. An answer that was kept is used only to confirm: one that differs is most likely
// older than the admission.
func (g *Generations) current(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, uid types.UID, admitted int64) (int64, error) {
	number, ok, many := g.kept(uid)
	if !ok && many {
		g.readAll(ctx, kind, uid)
		number, ok, _ = g.kept(uid)
	}
	if ok && number == admitted {
		return number, nil
	}
	asked := g.Clock.Now()
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(kind)
	if err := g.Reader.Get(ctx, key, &meta); apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("%s %s is not found: %w", kind.Kind, key.Name, ErrSuperseded)
	} else if err != nil {
		return 0, fmt.Errorf("read %s %s before acting for it: %w", kind.Kind, key.Name, err)
	}
	if meta.UID != uid || meta.DeletionTimestamp != nil {
		return 0, fmt.Errorf("%s %s was deleted or replaced: %w", kind.Kind, key.Name, ErrSuperseded)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(asked)
	g.known[uid] = generation{meta.Generation, asked}
	return meta.Generation, nil
}

// kept gives an answer that is still good, and says whether so many policies were asked for lately that one list costs
// the API server less than a read for each.
func (g *Generations) kept(uid types.UID) (number int64, ok, many bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.Clock.Now()
	if g.wanted == nil {
		g.wanted = map[types.UID]time.Time{}
	}
	g.wanted[uid] = now
	lately := 0
	for other, at := range g.wanted {
		if now.Sub(at) < 2*g.keepFor() {
			lately++
		} else {
			delete(g.wanted, other)
		}
	}
	known, ok := g.known[uid]
	return known.number, ok && now.Sub(known.at) < g.keepFor(), lately > fewPolicies
}

// readAll reads all policies of a kind at once, for one caller while the others wait. What it doesn't find, and what an
// error leaves out, is then asked for by itself.
func (g *Generations) readAll(ctx context.Context, kind schema.GroupVersionKind, uid types.UID) {
	g.reading.Lock()
	defer g.reading.Unlock()
	if _, ok, _ := g.kept(uid); ok || !g.failed.IsZero() && g.Clock.Since(g.failed) < g.keepFor() {
		return // read while we waited, or in vain
	}
	asked := g.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, listTakes)
	defer cancel()
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if g.Reader.List(ctx, &list, client.Limit(mostPolicies)) != nil {
		g.failed = g.Clock.Now()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(asked)
	for i := range list.Items {
		if meta := &list.Items[i]; meta.DeletionTimestamp == nil {
			g.known[meta.UID] = generation{meta.Generation, asked}
		}
	}
}

// forget drops answers that nobody asked for lately; it needs mu.
func (g *Generations) forget(now time.Time) {
	if g.known == nil {
		g.known = map[types.UID]generation{}
	}
	for uid, k := range g.known {
		if now.Sub(k.at) > time.Minute {
			delete(g.known, uid)
		}
	}
}

func (g *Generations) keepFor() time.Duration {
	if g.Keep == 0 {
		return time.Second
	}
	return g.Keep
}
