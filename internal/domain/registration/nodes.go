package registration

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

func (r *reader) nodes(where string, check *Check, n *v1alpha1.NodesCheck) {
	check.Nodes = true
	switch {
	case n.Min == nil:
		check.desired = r.compile(where+": nodes.desired", n.Desired, cel.IntType, true)
		check.byConditions = check.byConditions || check.desired.mayRead(varObject, "status", "conditions")
	case n.Min.Type == intstr.Int:
		check.least = func(*unstructured.Unstructured) (int64, error) { return int64(n.Min.IntVal), nil }
	default:
		e := r.compile(where+": nodes.min", n.Min.StrVal, cel.IntType, false)
		check.least = func(target *unstructured.Unstructured) (int64, error) { return evalAs[int64](e, target, nil) }
	}
}

// judgeNodes judges the nodes of a shoot, by how many the target wants.
func (c *Check) judgeNodes(target *unstructured.Unstructured, there Finder) (health.Result, error) {
	least, err := c.least(target)
	if err != nil {
		return c.withName(health.Faulty(fmt.Errorf("evaluate nodes.min: %w", err))), nil
	}
	return c.compareNodes(least, there)
}

// judgeDesired judges the nodes of a shoot, by how many is wanted by what was found of what the check looks at. Where none is, they aren't
// asked for: a shoot that is hibernated has no API server.
func (c *Check) judgeDesired(ref Ref, target *unstructured.Unstructured, objects []*unstructured.Unstructured, there Finder) (health.Result, error) {
	objects, err := c.Filter(target, objects)
	if err != nil {
		return c.withName(health.Faulty(err)), nil
	}
	if len(objects) == 0 {
		return c.withName(health.NothingFound(c.OnMissing, c.missing(ref), c.Timeout)), nil
	}
	staying := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	if len(staying) == 0 {
		return c.withName(health.NothingFound(health.MissingProgresses, c.called(ref)+" is being deleted", c.Timeout)), nil
	}
	desired, err := c.sumOfDesired(target, staying)
	if err != nil {
		return c.withName(health.Faulty(err)), nil
	}
	if desired == 0 {
		return c.withName(health.Result{Status: health.True}), nil
	}
	return c.compareNodes(desired, there)
}

// sumOfDesired is how many nodes the objects want together.
func (c *Check) sumOfDesired(target *unstructured.Unstructured, objects []*unstructured.Unstructured) (sum int64, err error) {
	for _, object := range objects {
		desired, err := evalAs[int64](c.desired, target, object)
		if err == nil && desired < 0 {
			err = fmt.Errorf("it gave %d", desired)
		}
		if err != nil {
			return 0, fmt.Errorf("evaluate nodes.desired of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		sum += desired
	}
	return sum, nil
}

func (c *Check) compareNodes(least int64, there Finder) (health.Result, error) {
	nodes, err := there.Nodes()
	if err != nil {
		return health.Result{}, err
	}
	r := health.Nodes(nodes, int(least))
	r.Timeout = c.Timeout
	return c.withName(r), nil
}
