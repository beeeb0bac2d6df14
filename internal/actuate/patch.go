package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/hold"
)

// operation is one operation of a JSON Patch (RFC 6902).
type operation struct {
	Op    string
	Path  string
	Value any
}

// MarshalJSON keeps `"value": null`, which `test` needs to say that a field is absent.
func (o operation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(map[string]any{"op": o.Op, "path": o.Path})
	}
	return json.Marshal(map[string]any{"op": o.Op, "path": o.Path, "value": o.Value})
}

// taintPatch replaces a node's taints and the ownership record in one write that fails when either is no longer what was
// read: spec.taints is an atomic list, in which any other kind of patch loses what others wrote meanwhile. A harmful one fails
// too when the node's hold isn't what was read.
func taintPatch(node *condition.Node, taints []corev1.Taint, owned condition.Ownership, harmful bool) ([]byte, error) {
	before := any(node.Taints)
	if len(node.Taints) == 0 {
		before = nil // the field is absent then, and `test []` would fail
	}
	if taints == nil {
		taints = []corev1.Taint{}
	}
	ops := []operation{
		{"test", "/metadata/uid", node.UID},
		{"test", "/spec/taints", before},
		{"add", "/spec/taints", taints},
	}
	if harmful && node.Annotated {
		ops = append(ops, holdOperation(node))
	}
	return json.Marshal(append(ops, recordOperations(node, owned.String())...))
}

// holdOperation fails when people asked meanwhile to leave the node alone. Where there are no annotations at all, the record's
// operations make sure of that.
func holdOperation(node *condition.Node) operation {
	o := operation{Op: "test", Path: annotationPath(v1alpha1.AnnotationHoldUntil)}
	if node.Hold != nil {
		o.Value = node.Hold.Text
	}
	return o
}

func annotationPath(name string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(name, "/", "~1")
}

// recordOperations give the node another record, "" for none, if it still is what was read.
func recordOperations(node *condition.Node, after string) []operation {
	before, had := node.Record()
	path := annotationPath(v1alpha1.AnnotationOwnedTaints)
	switch {
	case !had && after == "":
		return nil
	case !node.Annotated: // the parent of a path must exist
		return []operation{{"test", "/metadata/annotations", nil}, {"add", "/metadata/annotations", map[string]string{v1alpha1.AnnotationOwnedTaints: after}}}
	case !had:
		return []operation{{"test", path, nil}, {"add", path, after}}
	case after == "":
		return []operation{{"test", path, before}, {Op: "remove", Path: path}}
	}
	return []operation{{"test", path, before}, {"add", path, after}}
}

// stale recognises a failed `test`: 422 without causes, where a real validation error has causes.
func stale(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return false
	}
	return status.Status().Details == nil || len(status.Status().Details.Causes) == 0
}

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
