package actuate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

// claimNew claims a condition that isn't there. Where somebody else wrote it just before, the claim is taken back: that
// condition is theirs.
func (c *Conditions) claimNew(ctx context.Context, w ConditionWrite) (*unstructured.Unstructured, error) {
	target, conditionType := w.Target, w.Step.Condition.Type
	if err := c.dryRun(ctx, w); err != nil {
		return target, err
	}
	claimed, err := c.claim(ctx, target, conditionType, true)
	if err != nil {
		return target, err
	}
	if health.Find(claimed, conditionType) == nil {
		return claimed, nil
	}
	err = fmt.Errorf("condition %s of %s came from someone else meanwhile: %w", conditionType, target.GetName(), ErrStale)
	return target, errors.Join(err, c.disclaim(ctx, claimed, conditionType))
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

// disclaim takes back a claim whose condition didn't come about.
func (c *Conditions) disclaim(ctx context.Context, target *unstructured.Unstructured, conditionType string) error {
	_, err := c.claim(ctx, target, conditionType, false)
	return err
}

// claim writes the record, unless the target isn't any more what was read.
func (c *Conditions) claim(ctx context.Context, target *unstructured.Unstructured, conditionType string, owned bool) (*unstructured.Unstructured, error) {
	before, had := target.GetAnnotations()[v1alpha1.AnnotationOwnedConditions]
	text := health.Claim(target, conditionType, owned)
	if text == before {
		return target, nil
	}
	operations := append([]operation{{"test", "/metadata/uid", target.GetUID()}},
		annotationOperations(v1alpha1.AnnotationOwnedConditions, target.GetAnnotations() != nil, before, had, text)...)
	patch, err := json.Marshal(operations)
	if err != nil {
		return target, fmt.Errorf("build the record of %s: %w", target.GetName(), err)
	}
	if c.Leads != nil && !c.Leads() {
		return target, fmt.Errorf("write the record of %s: this replica may no longer be the leader: %w", target.GetName(), ErrStale)
	}
	after := target.DeepCopy()
	if err := c.Client.Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("autohealer")); err != nil {
		err = fmt.Errorf("write annotation %s of %s: %w", v1alpha1.AnnotationOwnedConditions, target.GetName(), err)
		if mayBeStale(err) {
			if _, changed := c.reread(ctx, target); changed {
				return target, fmt.Errorf("%w: %w", ErrStale, err)
			}
		}
		return target, err
	}
	return after, nil
}
