package healthcheck

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestATargetThatGoesDuringAWriteIsNoError(t *testing.T) {
	patches := 0
	turns := func(context.Context) (*SingleCheckResult, error) {
		return &SingleCheckResult{Status: map[bool]ConditionStatus{true: ConditionTrue, false: ConditionFalse}[patches == 0]}, nil
	}
	r, _ := reconcilerOf(For(gadget).Check("X", "x", func() HealthCheck { return checkFunc(turns) }), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if patches++; patches == 2 {
				if err := c.Delete(ctx, o.DeepCopyObject().(client.Object)); err != nil {
					return err
				}
			}
			return c.SubResource(subresource).Patch(ctx, o, patch, options...)
		},
	})
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ofG); err != nil {
			t.Error(err)
		}
	}
	if patches != 2 || r.writer.breaker.state.HasRecent(time.Now()) {
		t.Errorf("after %d writes what was never written counts", patches)
	}
}

func TestATargetThatIsMadeAnewDuringAWriteIsAnother(t *testing.T) {
	r, stored := reconcilerOf(For(gadget).Check("X", "x", fine), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			another := untyped(gadget)
			another.SetNamespace("a")
			another.SetName("g")
			another.SetUID("g-2")
			return errors.Join(c.Delete(ctx, o.DeepCopyObject().(client.Object)), c.Create(ctx, another), byGuard)
		},
	})
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Error(err)
	}
	if got := conditionOf(t, stored, "X"); got != "none" {
		t.Errorf("it is %s", got)
	}
}
