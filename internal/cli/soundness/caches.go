package soundness

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/kinds"
)

// followsWithin is how soon a manager that is well has seen a change; it takes milliseconds, and longer when many come at once.
const followsWithin = 15 * time.Second

// caches looks whether the manager has seen each policy as it is now: one whose watch died silently goes on with what it last saw.
func (c *Checker) caches(ctx context.Context) ([]Finding, error) {
	leaderless, err := c.leaderless(ctx)
	if err != nil {
		return nil, err
	}
	var found []Finding
	if leaderless != nil {
		found = append(found, Finding{"no manager is known to lead that would see policies", leaderless.Do})
	}
	for _, kind := range kinds.All {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GVK())
		if err := c.Client.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			found = append(found, Finding{fmt.Sprintf("no %s can be seen: its kind is missing", kind.Name()), reapply})
			continue
		} else if err != nil {
			return sorted(found), err
		}
		for i := range list.Items {
			if why := c.unseen(&list.Items[i]); why != "" {
				found = append(found, Finding{why, "If a manager leads, restart it: kubectl -n " + c.Namespace + " rollout restart deployment/" + c.Manager + ". " + c.logs()})
			}
		}
	}
	return sorted(found), nil
}

// unseen says of a policy that the manager hasn't seen it as it is; "" when it has, or may still be about to.
func (c *Checker) unseen(policy *object) string {
	observed, _, _ := unstructured.NestedInt64(policy.Object, "status", "observedGeneration")
	changed := lastChange(policy)
	if observed == policy.GetGeneration() || c.Clock.Since(changed).Abs() < followsWithin {
		return ""
	}
	name := title(policy)
	if policy.GetNamespace() != "" {
		name += " in namespace " + policy.GetNamespace()
	}
	return fmt.Sprintf("%s was changed %s ago, and the manager hasn't seen that: it knows generation %d of %d", name, c.Clock.Since(changed).Round(time.Second), observed, policy.GetGeneration())
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
