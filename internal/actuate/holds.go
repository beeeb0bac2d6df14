package actuate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// Hold annotates an object of any kind so that nothing new is done to it until then, and says why where a reason is given. The
// object must have the UID that it was read with.
func Hold(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata, until time.Time, reason string) error {
	annotations := map[string]any{v1alpha1.AnnotationHoldUntil: hold.Text(until), v1alpha1.AnnotationHoldReason: nil}
	if reason != "" {
		annotations[v1alpha1.AnnotationHoldReason] = reason
	}
	return annotate(ctx, c, object, annotations)
}

// Release takes a hold and its reason off an object of any kind, which must have the UID that it was read with.
func Release(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata) error {
	return annotate(ctx, c, object, map[string]any{v1alpha1.AnnotationHoldUntil: nil, v1alpha1.AnnotationHoldReason: nil})
}

func annotate(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("build the patch of %s: %w", object.Name, err)
	}
	if err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("autohealer")); err != nil {
		return fmt.Errorf("change its annotation %s: %w", v1alpha1.AnnotationHoldUntil, err)
	}
	return nil
}
