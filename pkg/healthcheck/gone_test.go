package healthcheck

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestATargetThatGoesDuringAWriteIsNoError(t *testing.T) {
	r, _ := reconcilerOf(For(gadget).Check("X", "x", fine), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := c.Delete(ctx, o.DeepCopyObject().(client.Object)); err != nil {
				return err
			}
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		},
	})
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Error(err)
	}
}
