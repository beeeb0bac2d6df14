package conditionset

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// orphanWait lies between the two live reads that make a record an orphan: one alone could come from an API server that
// is behind, or from a restore under way.
const orphanWait = time.Minute

// Orphans finds records whose set is gone without having been undone: someone removed its finalizer.
type Orphans struct {
	Live client.Reader
	// Confirm undoes what an orphan holds.
	Confirm func(types.UID)

	mu   sync.Mutex
	seen map[types.UID]time.Time // when a live read first didn't find it
}

// check reads live each set that isn't known, and gives when to look again, zero for never.
func (o *Orphans) check(ctx context.Context, unknown map[types.UID]string, now time.Time) (again time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uid, name := range unknown {
		first, seen := o.seen[uid]
		if seen && now.Sub(first) < orphanWait {
			again = first.Add(orphanWait)
			continue
		}
		if !o.gone(ctx, uid, name) {
			delete(o.seen, uid)
			again = now.Add(orphanWait)
			continue
		}
		if seen {
			log.FromContext(ctx).Info("Undoing for a ConditionSet that is gone", "set", name, "setUID", uid)
			delete(o.seen, uid)
			o.Confirm(uid)
			return now
		}
		if o.seen == nil {
			o.seen = map[types.UID]time.Time{}
		}
		o.seen[uid] = now
		again = now.Add(orphanWait)
	}
	return again
}

// gone is true only on the API server's word.
func (o *Orphans) gone(ctx context.Context, uid types.UID, name string) bool {
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ConditionSet"))
	err := o.Live.Get(ctx, types.NamespacedName{Name: name}, &meta)
	if err == nil {
		return meta.UID != uid
	}
	return apierrors.IsNotFound(err)
}
