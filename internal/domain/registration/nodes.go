package registration

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

func (r *reader) nodes(where string, check *Check, n *v1alpha1.NodesCheck) {
	check.Nodes = true
	if n.Min == nil {
		check.desired = r.compile(where+": nodes.desired", n.Desired, cel.IntType, true)
		return
	}
	check.least = r.compile(where+": nodes.min", n.Min.String(), cel.IntType, false) // a number is CEL, too
}

// judgeDesired judges the nodes of a shoot, by how many is wanted by what the check looks at. Where none is, they aren't asked for: a shoot
// that is hibernated has no API server.
func (c *Check) judgeDesired(ref Ref, target *unstructured.Unstructured, objects []*unstructured.Unstructured, there Finder) (health.Result, error) {
	staying := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	if len(staying) == 0 {
		return health.NothingFound(health.MissingProgresses, c.called(ref)+" is being deleted", c.Timeout), nil
	}
	var sum int64
	for _, object := range staying {
		desired, err := evalAs[int64](c.desired, target, object, 0)
		if err == nil && desired < 0 {
			err = c.desired.failure(object, fmt.Errorf("it gave %d", desired))
		}
		if err != nil {
			return health.Result{}, err
		}
		sum += desired
	}
	if sum == 0 {
		return health.Result{Status: health.True}, nil
	}
	return c.compareNodes(sum, there)
}

func (c *Check) compareNodes(least int64, there Finder) (health.Result, error) {
	nodes, err := there.Nodes()
	r := health.Nodes(nodes, int(least))
	r.Timeout = c.Timeout
	return r, err
}
