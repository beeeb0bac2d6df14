package actuate

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// Unclaim takes a condition that isn't there any more, or isn't ours, out of the target's record.
func (c *Conditions) Unclaim(ctx context.Context, target *unstructured.Unstructured, conditionType string) (*unstructured.Unstructured, error) {
	if health.Ours(target, conditionType) {
		return target, fmt.Errorf("forget condition %s of %s, which is there: %w", conditionType, target.GetName(), ErrNotValidated)
	}
	return c.claim(ctx, target, conditionType, false)
}

// claimNew claims a condition that isn't there yet.
func (c *Conditions) claimNew(ctx context.Context, w ConditionWrite) (*unstructured.Unstructured, error) {
	if err := c.dryRun(ctx, w); err != nil {
		return w.Target, err
	}
	return c.claim(ctx, w.Target, w.Step.Condition.Type, true)
}

// disclaim takes back the claim of a condition that didn't come about. One that is there as it was to be did, and the answer was lost.
func (c *Conditions) disclaim(ctx context.Context, target *unstructured.Unstructured, wanted *health.Condition) error {
	if health.Find(target, wanted.Type).SameContent(wanted) {
		return nil
	}
	_, err := c.claim(ctx, target, wanted.Type, false)
	return err
}

// dryRun asks the API server, before a condition is claimed, whether it would refuse it: a claim that stays without its condition
// would make ours what somebody else writes there in the form of checks. What it can't say is no refusal, as where an admission
// webhook has no dry run.
func (c *Conditions) dryRun(ctx context.Context, w ConditionWrite) error {
	trial := *c
	trial.Client = client.NewDryRunClient(c.Client)
	_, err := trial.write(ctx, w.Target, w)
	if !errors.Is(err, ErrStale) && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)) {
		return err
	}
	return nil
}

// claim takes a condition into the record, or out of it, as long as that condition is as it was seen: what somebody else wrote is never
// claimed, and what this process wrote, and hasn't seen since, never forgotten.
func (c *Conditions) claim(ctx context.Context, target *unstructured.Unstructured, conditionType string, owned bool) (*unstructured.Unstructured, error) {
	return c.whileSame(ctx, target, conditionType, func(target *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return c.sendClaim(ctx, target, health.Claim(target, conditionType, owned))
	})
}

func (c *Conditions) sendClaim(ctx context.Context, target *unstructured.Unstructured, text string) (*unstructured.Unstructured, error) {
	annotations := target.GetAnnotations()
	if text == annotations[v1alpha1.AnnotationOwnedConditions] {
		return target, nil
	}
	if c.Leads != nil && !c.Leads() {
		return target, fmt.Errorf("write the record of %s: this replica may no longer be the leader: %w", target.GetName(), ErrStale)
	}
	after := target.DeepCopy()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[v1alpha1.AnnotationOwnedConditions] = text; text == "" {
		delete(annotations, v1alpha1.AnnotationOwnedConditions)
	}
	after.SetAnnotations(annotations)
	unchanged := client.MergeFromWithOptions(target, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, after, unchanged, client.FieldOwner("autohealer")); err != nil {
		return target, fmt.Errorf("write annotation %s of %s: %w", v1alpha1.AnnotationOwnedConditions, target.GetName(), err)
	}
	return after, nil
}
