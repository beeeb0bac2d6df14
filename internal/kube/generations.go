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

// Generations asks the API server, not the cache, whether a policy is still the one that was admitted. An informer whose
// watch died silently would go on serving what it last saw. Answers are kept for a moment, so that a storm of acts for
// one policy costs one read.
type Generations struct {
	Reader client.Reader
	Clock  clock.PassiveClock
	// Keep is how long an answer is used; one second when zero.
	Keep time.Duration

	mu    sync.Mutex
	known map[types.UID]generation
}

type generation struct {
	number int64
	at     time.Time
}

// Check gives an error when the policy is gone, being deleted, replaced, or changed since its generation was admitted.
func (g *Generations) Check(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, uid types.UID, admitted int64) error {
	current, err := g.current(ctx, kind, key, uid)
	if err != nil {
		return err
	}
	if current != admitted {
		return fmt.Errorf("%s %s is at generation %d, and %d was admitted: %w", kind.Kind, key.Name, current, admitted, ErrSuperseded)
	}
	return nil
}

func (g *Generations) current(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, uid types.UID) (int64, error) {
	keep := g.Keep
	if keep == 0 {
		keep = time.Second
	}
	g.mu.Lock()
	known, ok := g.known[uid]
	g.mu.Unlock()
	if ok && g.Clock.Since(known.at) < keep {
		return known.number, nil
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
	if g.known == nil {
		g.known = map[types.UID]generation{}
	}
	for other, k := range g.known { // forget what nobody asked for lately
		if g.Clock.Since(k.at) > time.Minute {
			delete(g.known, other)
		}
	}
	g.known[uid] = generation{meta.Generation, asked}
	return meta.Generation, nil
}
