package soundness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// followsWithin is how soon a manager that is well has seen a change; it takes milliseconds, and longer when many come at once.
const followsWithin = 15 * time.Second

// caches looks whether the manager has seen each policy as it is now: one whose watch died silently goes on with what it last saw.
func (c *Checker) caches(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, list := range []client.ObjectList{
		&v1alpha1.ConditionSetList{}, &v1alpha1.GuardrailExceptionList{}, &v1alpha1.GuardrailList{}, &v1alpha1.ProbeConfigList{}, &v1alpha1.WeederConfigList{},
	} {
		if err := c.Client.List(ctx, list); meta.IsNoMatchError(err) {
			continue // that the kind is missing is told of already
		} else if err != nil {
			return found, err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			if why := c.unseen(item); why != "" {
				found = append(found, Finding{why, "If a manager leads, restart it: kubectl -n " + c.Namespace + " rollout restart deployment/" + c.Manager + ". " + c.logs()})
			}
			return nil
		})
		if err != nil {
			return found, err
		}
	}
	return sorted(found), nil
}

// unseen says of a policy that the manager hasn't seen it as it is; "" when it has, or may still be about to.
func (c *Checker) unseen(item runtime.Object) string {
	policy := item.(client.Object)
	observed, changed := observedGeneration(item), lastChange(policy)
	if observed == policy.GetGeneration() || c.Clock.Since(changed) < followsWithin {
		return ""
	}
	name := policy.GetName()
	if policy.GetNamespace() != "" {
		name = policy.GetNamespace() + "/" + name
	}
	return fmt.Sprintf("%T %s was changed %s ago, and the manager hasn't seen that: it knows generation %d of %d", item, name, c.Clock.Since(changed).Round(time.Second), observed, policy.GetGeneration())
}

// observedGeneration of a policy's status; -1 when no manager has seen it.
func observedGeneration(item runtime.Object) int64 {
	switch p := item.(type) {
	case *v1alpha1.ConditionSet:
		return p.Status.ObservedGeneration
	case *v1alpha1.Guardrail:
		return p.Status.ObservedGeneration
	case *v1alpha1.GuardrailException:
		return p.Status.ObservedGeneration
	case *v1alpha1.ProbeConfig:
		return p.Status.ObservedGeneration
	case *v1alpha1.WeederConfig:
		return p.Status.ObservedGeneration
	}
	return -1
}

// lastChange is when somebody last wrote anything but the status.
func lastChange(policy client.Object) time.Time {
	last := policy.GetCreationTimestamp().Time
	for _, of := range policy.GetManagedFields() {
		if of.Subresource == "" && of.Time != nil && of.Time.After(last) {
			last = of.Time.Time
		}
	}
	return last
}
