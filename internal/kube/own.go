package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// SetFinalizer adds or removes a finalizer of one of our own objects by a patch of the metadata alone: writing the whole
// object back would normalise what the user wrote, which GitOps tools show as drift.
func SetFinalizer(ctx context.Context, c client.Writer, object client.Object, finalizer string, wanted bool) error {
	before, change := object.DeepCopyObject().(client.Object), controllerutil.RemoveFinalizer
	if wanted {
		change = controllerutil.AddFinalizer
	}
	if !change(object, finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("set finalizer %s of %s: %w", finalizer, object.GetName(), err)
	}
	return nil
}

// WriteStatus writes what differs between before and after, the same object with another status, and nothing when
// nothing does. A conflict is returned: the status was computed from an older object.
func WriteStatus(ctx context.Context, c client.Client, before, after client.Object) (written bool, err error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, after, patch); err != nil {
		return false, fmt.Errorf("write status of %s: %w", after.GetName(), err)
	}
	return true, nil
}

// MergeStatus writes fields of an object's status, whatever the others are: it is for what only the leader writes. Kind,
// namespace, name, UID and resource version say of which object, and in which state; any other is a conflict. The object's
// metadata are then as they are stored, and nothing else of it is sent back.
func MergeStatus(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata, fields any) error {
	which := map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()}
	patch, err := json.Marshal(map[string]any{"metadata": which, "status": fields})
	if err != nil {
		return fmt.Errorf("encode status of %s: %w", object.GetName(), err)
	}
	if err := c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write status of %s: %w", object.GetName(), err)
	}
	return nil
}

// AfterConflict is what a reconciler returns for one of our own objects. A conflict is no failure: what was computed came
// from an older object, and the newer one is on its way by the watch; to look again after a while is the safety net.
func AfterConflict(ctx context.Context, result reconcile.Result, err error, again time.Duration) (reconcile.Result, error) {
	if !apierrors.IsConflict(err) {
		return result, err
	}
	log.FromContext(ctx).V(1).Info("Computed from an older object, looking again", "conflict", err.Error())
	return reconcile.Result{RequeueAfter: again}, nil
}

// Policies finds stored objects of our own kinds in the manager's cache, for rules that look at them.
type Policies struct {
	Cache  cache.Cache
	Scheme *runtime.Scheme
}

// Synced says whether the cache of a kind is filled; it doesn't wait for that.
func (p *Policies) Synced(ctx context.Context, kind string) bool {
	informer, err := p.Cache.GetInformerForKind(ctx, v1alpha1.GroupVersion.WithKind(kind), cache.BlockUntilSynced(false))
	return err == nil && informer.HasSynced()
}

// Get gives an object, nil when there is none.
func (p *Policies) Get(ctx context.Context, kind, namespace, name string) (client.Object, error) {
	made, err := p.Scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", kind, err)
	}
	object := made.(client.Object)
	if err := p.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// All are the objects of a kind in the order of their names, as the cache has them: nobody may change them.
func (p *Policies) All(ctx context.Context, kind string) (iter.Seq[client.Object], error) {
	made, err := p.Scheme.New(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", kind, err)
	}
	list := made.(client.ObjectList)
	if err := p.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s in the cache: %w", kind, err)
	}
	objects := make([]client.Object, 0, meta.LenList(list))
	err = meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, item.(client.Object))
		return nil
	})
	slices.SortFunc(objects, ByName) // a cache has no order
	return slices.Values(objects), err
}

// ByName orders objects of a kind by namespace and name.
func ByName(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

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
