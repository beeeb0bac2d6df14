// Package freeze makes and removes the Guardrail that stops everything, undo included.
package freeze

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// fieldOwner is whose fields the Guardrail's are; no GitOps tool takes them for its own.
const fieldOwner = client.FieldOwner("kubectl-autohealer")

// Freeze makes the Guardrail; made is false when it was there. It carries nothing by which a GitOps tool would take it for
// its own, and so prune it: no label, and annotations of ours only.
func Freeze(ctx context.Context, c client.Client, reason string) (guardrail *v1alpha1.Guardrail, made bool, err error) {
	guardrail = &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeGuardrail, Annotations: map[string]string{}}}
	guardrail.Spec.Frozen = true
	if by := user(ctx, c); by != "" {
		guardrail.Annotations[v1alpha1.AnnotationFrozenBy] = by
	}
	if reason != "" {
		guardrail.Annotations[v1alpha1.AnnotationFreezeReason] = reason
	}
	err = c.Create(ctx, guardrail, fieldOwner)
	if !apierrors.IsAlreadyExists(err) {
		return guardrail, err == nil, err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(guardrail), guardrail); err != nil {
		return nil, false, err
	}
	switch {
	case guardrail.DeletionTimestamp != nil:
		return nil, false, fmt.Errorf("it is being deleted, and waits for the finalizers %q; it freezes until it is gone", guardrail.Finalizers)
	case !guardrail.Spec.Frozen:
		return nil, false, fmt.Errorf("there is a Guardrail of this name that doesn't freeze: delete it (kubectl delete guardrail %s), then freeze again", guardrail.Name)
	}
	return guardrail, false, nil
}

// user is who asks, as the API server knows them; "" when it doesn't say.
func user(ctx context.Context, c client.Client) string {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// pollInterval is how often it is checked whether the manager has confirmed.
const pollInterval = 100 * time.Millisecond

// Confirmed waits until the leading manager has put the Guardrail in force, at most for so long. An error other than the
// deadline's is the API server's.
func Confirmed(ctx context.Context, c client.Client, guardrail *v1alpha1.Guardrail, within time.Duration) (confirmed bool, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollInterval, within, true, func(ctx context.Context) (bool, error) {
		now := &v1alpha1.Guardrail{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(guardrail), now); err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		confirmed = ready != nil && ready.Reason == v1alpha1.ReasonFrozen && ready.ObservedGeneration == now.Generation && now.UID == guardrail.UID
		return confirmed, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return confirmed, err
}

// Thaw deletes the Guardrail; was is nil when there was none. Others are further Guardrails that freeze all the same, by name.
func Thaw(ctx context.Context, c client.Client) (was *v1alpha1.Guardrail, others []string, err error) {
	var all v1alpha1.GuardrailList
	if err := c.List(ctx, &all); err != nil {
		return nil, nil, fmt.Errorf("list Guardrails: %w", err)
	}
	for i := range all.Items {
		switch guardrail := &all.Items[i]; {
		case guardrail.Name == v1alpha1.FreezeGuardrail:
			was = guardrail
		case guardrail.Spec.Frozen:
			others = append(others, guardrail.Name)
		}
	}
	slices.Sort(others)
	if was == nil {
		return nil, others, nil
	}
	if err := c.Delete(ctx, was, client.Preconditions{UID: &was.UID}); err != nil && !apierrors.IsNotFound(err) {
		return nil, others, fmt.Errorf("delete Guardrail %s: %w", was.Name, err)
	}
	return was, others, nil
}

// Gone waits for a deletion, at most for so long, and gives what is left then, which waits for somebody's finalizers; nil when it is gone.
func Gone(ctx context.Context, c client.Client, was *v1alpha1.Guardrail, within time.Duration) (remaining *v1alpha1.Guardrail, err error) {
	now := &v1alpha1.Guardrail{}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, within, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(was), now)
		return apierrors.IsNotFound(err) || err == nil && now.UID != was.UID, client.IgnoreNotFound(err)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return now, nil
	}
	return nil, err
}
