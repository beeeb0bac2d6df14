package kube

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Orphans finds records whose policy is gone without having been undone: someone removed its finalizer. It is safe for
// concurrent use.
type Orphans struct {
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Kind of the policies.
	Kind schema.GroupVersionKind
	// Confirm undoes what an orphan holds.
	Confirm func(types.UID)
	// Timings say when a record is looked at once more. The zero value is production's.
	Timings timing.Timings

	mu   sync.Mutex
	seen map[types.UID]time.Time // when a live read first didn't find it
}

// Check reads live each policy that isn't known, and gives when to look again, zero for never.
func (o *Orphans) Check(ctx context.Context, unknown map[types.UID]types.NamespacedName, now time.Time) (again time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uid, key := range unknown {
		at := o.check(ctx, uid, key, now)
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	return again
}

// check needs o.mu.
func (o *Orphans) check(ctx context.Context, uid types.UID, key types.NamespacedName, now time.Time) (again time.Time) {
	first, seen := o.seen[uid]
	if seen && now.Sub(first) < o.Timings.Orphan() {
		return first.Add(o.Timings.Orphan())
	}
	if !o.isGone(ctx, uid, key) {
		delete(o.seen, uid)
		return now.Add(o.Timings.Orphan())
	}
	if seen {
		log.FromContext(ctx).Info("Undoing for a policy that is gone", "kind", o.Kind.Kind, "policy", key.String(), "policyUID", uid)
		delete(o.seen, uid)
		o.Confirm(uid)
		return now
	}
	if o.seen == nil {
		o.seen = map[types.UID]time.Time{}
	}
	o.seen[uid] = now
	return now.Add(o.Timings.Orphan())
}

// isGone is true only if the API server confirms it.
func (o *Orphans) isGone(ctx context.Context, uid types.UID, key types.NamespacedName) bool {
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(o.Kind)
	err := o.Live.Get(ctx, key, &meta)
	if err == nil {
		return meta.UID != uid
	}
	return apierrors.IsNotFound(err)
}
