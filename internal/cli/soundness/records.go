package soundness

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/records"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

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
	fleet := records.Fleet(nodes.Items, sets.Items, limit.Builtin(), condition.Moment{Now: c.Clock.Now()})
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
			"Look at it, then " + b.Mend(),
		})
	}
	return sorted(found), nil
}
