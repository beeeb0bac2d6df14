package soundness

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/docs"
	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/kinds"
)

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

func (c *Checker) manager(ctx context.Context) ([]Finding, error) {
	d, err := c.deployment(ctx)
	if err != nil {
		return nil, err
	}
	leaderless, err := c.leaderless(ctx)
	if err != nil {
		return nil, err
	}
	var found []Finding
	if d == nil {
		found = append(found, Finding{fmt.Sprintf("deployment/%s in namespace %s is missing", c.Manager, c.Namespace), reapply})
	}
	if leaderless != nil {
		found = append(found, *leaderless)
	}
	if d == nil {
		return found, nil
	}
	if why := unfinished(d); why != "" {
		found = append(found, Finding{why, fmt.Sprintf("See why: kubectl -n %s describe pods; %sdocs/how-to/install.md#if-the-manager-doesnt-get-ready. %s", c.Namespace, docs.Base, c.logs())})
	}
	return found, nil
}

// deployment is the manager's; nil when there is none.
func (c *Checker) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Manager}, d)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// unfinished says why a Deployment isn't rolled out; "" when it is: replicas of a former version serve and may lead.
func unfinished(d *appsv1.Deployment) string {
	wanted, s := ptr.Deref(d.Spec.Replicas, 1), d.Status
	switch {
	case d.DeletionTimestamp != nil:
		return "the manager's Deployment is being deleted"
	case wanted == 0:
		return "the manager's Deployment asks for no replicas"
	case s.ObservedGeneration < d.Generation:
		return "the manager's Deployment was changed, and the deployment controller hasn't seen that"
	case s.ReadyReplicas < wanted:
		return fmt.Sprintf("%d of %d replicas of the manager are ready", s.ReadyReplicas, wanted)
	case s.UpdatedReplicas < wanted:
		return fmt.Sprintf("%d of %d replicas of the manager are of the Deployment's present version", s.UpdatedReplicas, wanted)
	case s.Replicas > s.UpdatedReplicas:
		return fmt.Sprintf("%d replicas of the manager are there still that are to go", s.Replicas-s.UpdatedReplicas)
	}
	return ""
}

// leaderless says why no manager is known to lead; nil when one is.
func (c *Checker) leaderless(ctx context.Context) (*Finding, error) {
	lease := &coordinationv1.Lease{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Manager}, lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	return c.doubt(lease.Spec), nil
}

// doubt says why a Lease doesn't show that a manager leads.
func (c *Checker) doubt(s coordinationv1.LeaseSpec) *Finding {
	doubt := lease.Of(s, c.Clock.Now())
	why := fmt.Sprintf("the Lease %s in namespace %s %s", c.Manager, c.Namespace, doubt.Message(s))
	again := fmt.Sprintf("and a manager that runs takes a new one: kubectl -n %s delete lease %s", c.Namespace, c.Manager)
	switch doubt {
	case lease.None:
		return nil
	case lease.Foreign:
		return &Finding{why, "Delete it, " + again}
	case lease.FromTheFuture:
		return &Finding{why, fmt.Sprintf("If the clock of the node is wrong that %s runs on, set it; else delete the Lease, %s", *s.HolderIdentity, again)}
	}
	return &Finding{"no manager leads, so nothing is done and nothing undone", fmt.Sprintf("See its pods: kubectl -n %s get pods. %s", c.Namespace, c.logs())}
}

// observeTimeout is how soon a manager that is well has seen a change; it takes milliseconds, and longer when many come at once.
const observeTimeout = 15 * time.Second

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
	if observed == policy.GetGeneration() || c.Clock.Since(changed).Abs() < observeTimeout {
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

// records looks for taints that take a place under the limits and that no manager takes off: their set is gone, or the record on
// their node can't be read.
func (c *Checker) records(ctx context.Context) ([]Finding, error) {
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes); err != nil {
		return nil, err
	}
	var sets v1alpha1.ConditionSetList
	if err := c.Client.List(ctx, &sets); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	fleet := condition.FleetOfRecords(nodes.Items, sets.Items, limit.Builtin(), timing.Moment{Now: c.Clock.Now()})
	var found []Finding
	for _, o := range fleet.Orphans() {
		found = append(found, Finding{
			fmt.Sprintf("taint %s:%s on node/%s is of ConditionSet %s, which doesn't exist, and no other declares its key, so that the manager leaves it", o.Key, o.Effect, o.Node, o.Name),
			fmt.Sprintf("Take it off: kubectl autohealer undo node/%s; or store the ConditionSet again, and it takes the taint over.", o.Node),
		})
	}
	for _, b := range fleet.BrokenRecords() {
		found = append(found, Finding{
			fmt.Sprintf("the annotation %s of node/%s can't be read, so that nothing is done and nothing undone there", v1alpha1.AnnotationOwnedTaints, b.Node),
			"Look at it, then " + b.RepairSteps(),
		})
	}
	return sorted(found), nil
}
