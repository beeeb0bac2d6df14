package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SetFinalizer adds or removes a finalizer of one of our own objects by a patch of the metadata alone: writing the whole
// object back would normalise what the user wrote, which GitOps tools show as drift.
func SetFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string, wanted bool) error {
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
