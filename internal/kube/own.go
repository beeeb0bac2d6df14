package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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
