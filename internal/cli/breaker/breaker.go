// Package breaker closes open breakers for the plugin's user.
package breaker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// lookAgain lies between two looks at whether the manager has followed.
const lookAgain = 100 * time.Millisecond

// Open is a breaker that is open, or was until it was reset.
type Open struct {
	Set *v1alpha1.ConditionSet
	// Breaker as it was when it was asked for.
	Breaker v1alpha1.Breaker
}

// Reset resets the open breaker of a ConditionSet: this opening of it and no later one. It gives nil when none is open.
func Reset(ctx context.Context, c client.Client, name string) (*Open, error) {
	set := &v1alpha1.ConditionSet{}
	if err := c.Get(ctx, types.NamespacedName{Name: name}, set); err != nil {
		return nil, err
	}
	b := set.Status.Breaker
	if b == nil || b.Reset {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": set.UID, "annotations": map[string]string{v1alpha1.AnnotationResetBreaker: b.ID},
	}})
	if err != nil {
		return nil, fmt.Errorf("write the reset: %w", err)
	}
	err = c.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("kubectl-autohealer"))
	return &Open{Set: set, Breaker: *b}, err
}

// Followed waits until the manager has closed the breaker, at most for so long.
func (o *Open) Followed(ctx context.Context, c client.Client, within time.Duration) (followed bool, err error) {
	err = wait.PollUntilContextTimeout(ctx, lookAgain, within, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o.Set), o.Set); err != nil {
			return false, err
		}
		b := o.Set.Status.Breaker
		followed = (b == nil || b.Reset || b.ID != o.Breaker.ID) && !meta.IsStatusConditionTrue(o.Set.Status.Conditions, v1alpha1.ConditionBreakerOpen)
		return followed, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return followed, err
}
