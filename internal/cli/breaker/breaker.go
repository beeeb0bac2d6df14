// Package breaker closes open breakers for the plugin's user.
package breaker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// pollInterval is how often it is checked whether the manager has followed.
const pollInterval = 100 * time.Millisecond

// Open is a breaker that is open, or was until it was reset.
type Open struct {
	// Policy whose breaker it is, as it was read last.
	Policy client.Object
	// ID of this opening.
	ID       string
	OpenedAt time.Time
}

// Of gives the open breaker of a ConditionSet, HealthCheckRegistration or ProbeConfig; nil when none is open.
func Of(policy client.Object) *Open {
	switch p := policy.(type) {
	case *v1alpha1.ConditionSet:
		if b := p.Status.Breaker; b != nil && !b.Reset {
			return &Open{Policy: p, ID: b.ID, OpenedAt: b.OpenedAt.Time}
		}
	case *v1alpha1.HealthCheckRegistration:
		if b := p.Status.Breaker; b != nil {
			return &Open{Policy: p, ID: b.ID, OpenedAt: b.OpenedAt.Time}
		}
	case *v1alpha1.ProbeConfig:
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionBreakerOpen)
		if p.Status.BreakerID != "" && c != nil {
			return &Open{Policy: p, ID: p.Status.BreakerID, OpenedAt: c.LastTransitionTime.Time}
		}
	}
	return nil
}

// Reset resets the open breaker of the policy of this name and kind: this opening of it and no later one. It gives nil when
// none is open. That of the ProbeConfigs concerns them all, so a config of another namespace than Autohealer's own has no say
// over it: then the namespace itself is annotated, which takes the right to.
func Reset(ctx context.Context, c client.Client, policy client.Object, ownNamespace string) (*Open, error) {
	if err := c.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
		return nil, err
	}
	open := Of(policy)
	if open == nil {
		return nil, nil
	}
	metadata := map[string]any{"annotations": map[string]string{v1alpha1.AnnotationResetBreaker: open.ID}}
	var annotated client.Object = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}}
	if policy.GetNamespace() == "" || policy.GetNamespace() == ownNamespace {
		annotated, metadata["uid"] = policy, policy.GetUID()
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("write the reset: %w", err)
	}
	return open, c.Patch(ctx, annotated, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("kubectl-autohealer"))
}

// Followed waits until the manager has closed the breaker, at most for so long.
func (o *Open) Followed(ctx context.Context, c client.Client, within time.Duration) (followed bool, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollInterval, within, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o.Policy), o.Policy); err != nil {
			return false, err
		}
		now := Of(o.Policy)
		followed = now == nil || now.ID != o.ID
		return followed, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return followed, err
}
