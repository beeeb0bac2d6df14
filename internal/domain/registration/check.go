package registration

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// Selects says whether an object of Kind, in a namespace with these labels, is a target.
func (r *Registration) Selects(object *unstructured.Unstructured, namespace labels.Set) bool {
	return r.namespaces.Matches(namespace) && r.selectsByItself(object)
}

// SelectTargets gives those of the objects of Kind that are targets, by the labels of their namespaces. One that is being deleted isn't.
func (r *Registration) SelectTargets(objects []*unstructured.Unstructured, labelsOf func(namespace string) labels.Set) (targets []*unstructured.Unstructured) {
	for _, object := range objects {
		if object.GetDeletionTimestamp() == nil && r.selectsByItself(object) && (r.namespaces.Empty() || r.namespaces.Matches(labelsOf(object.GetNamespace()))) {
			targets = append(targets, object)
		}
	}
	return targets
}

// selectsByItself says whether an object of Kind is a target if its namespace is selected.
func (r *Registration) selectsByItself(object *unstructured.Unstructured) bool {
	if r.targetType != "" {
		if is, _, _ := unstructured.NestedString(object.Object, r.typePath...); is != r.targetType {
			return false
		}
	}
	return r.selector.Empty() || r.selector.Matches(labels.Set(object.GetLabels()))
}

// Suspended says whether a target isn't checked now. One for which that isn't known isn't checked either.
func (r *Registration) Suspended(target *unstructured.Unstructured) (bool, error) {
	suspended, err := evalAs(r.suspended, target, nil, false)
	return suspended || err != nil, err
}

// Applies says whether the check is to be made of this target: one that isn't counts as successful.
func (c *Check) Applies(target *unstructured.Unstructured) (bool, error) {
	return evalAs(c.when, target, nil, true)
}

// Ref is what a check looks at.
type Ref = health.Ref

// hasObject says whether the check looks at an object; one of nodes alone doesn't.
func (c *Check) hasObject() bool { return !c.Kind.Empty() }

// InSeed says whether the check looks at an object in the cluster of the target.
func (c *Check) InSeed() bool { return c.hasObject() && !c.Shoot }

// InShoot says whether the check looks at an object in the shoot.
func (c *Check) InShoot() bool { return c.hasObject() && c.Shoot }

// Ref gives what the check looks at for this target.
func (c *Check) Ref(target *unstructured.Unstructured) (ref Ref, err error) {
	ref = Ref{Kind: c.Kind, Selector: c.selector}
	if !c.Shoot {
		ref.Namespace = target.GetNamespace()
	}
	if ref.Namespace, err = evalAs(c.namespace, target, nil, ref.Namespace); err != nil {
		return Ref{}, err
	}
	if ref.Name, err = evalAs(c.name, target, nil, ""); err != nil {
		return Ref{}, err
	}
	if c.name != nil && ref.Name == "" {
		return Ref{}, expressionError{errors.New("object.name gave an empty name")}
	}
	return ref, nil
}

// Filter gives those of the objects that were found which the check looks at.
func (c *Check) Filter(target *unstructured.Unstructured, objects []*unstructured.Unstructured) (chosen []*unstructured.Unstructured, err error) {
	for _, object := range objects {
		is, err := evalAs(c.where, target, object, true)
		if err != nil {
			return nil, err
		}
		if is {
			chosen = append(chosen, object)
		}
	}
	return chosen, nil
}

// judgeAll judges the objects that the check looks at. The worst counts.
func (c *Check) judgeAll(target *unstructured.Unstructured, objects []*unstructured.Unstructured, now time.Time) health.Result {
	worst := health.Result{Status: health.True}
	for _, object := range objects {
		switch r := c.judge(target, object, now); {
		case health.CompareStatus(r.Status, worst.Status) < 0:
			worst = r
		case worst.Status == health.True && worst.Note == "": // of several, the first
			worst.Note = r.Note
		}
	}
	return worst
}

// Failed is the result of a check that couldn't be made.
func (c *Check) Failed(err error) health.Result { return c.withName(health.Error(err)) }

// withName is a result with the check's name and codes.
func (c *Check) withName(r health.Result) health.Result {
	r.Check = c.Name
	if r.Status == health.True {
		return r
	}
	for _, e := range c.codes {
		if e.match.MatchString(r.Detail) {
			r.Codes = append(r.Codes, e.code)
		}
	}
	return r
}

// celCheck judges by expressions: the first that is true of failed, progressing and healthy decides.
func (r *reader) celCheck(where string, c *Check, e *v1alpha1.CELCheck) func(target, object *unstructured.Unstructured, now time.Time) health.Result {
	compile := func(field, text string, result *cel.Type) *Expression {
		if text == "" {
			return nil
		}
		return r.compile(where+": cel."+field, text, result, true)
	}
	verdicts := []struct {
		is health.Status
		by *Expression
	}{
		{health.False, compile("failed", e.Failed, cel.BoolType)},
		{health.Progressing, compile("progressing", e.Progressing, cel.BoolType)},
		{health.True, compile("healthy", e.Healthy, cel.BoolType)},
	}
	message := compile("message", e.Message, cel.StringType)
	return func(target, object *unstructured.Unstructured, _ time.Time) health.Result {
		result := health.Result{Status: health.False, Timeout: c.Timeout}
		for _, a := range verdicts {
			answer, err := evalAs(a.by, target, object, false)
			if err != nil {
				return health.Faulty(err)
			}
			if answer {
				result.Status = a.is
				break
			}
		}
		result.Detail = object.GetName() + " isn't healthy"
		if result.Status == health.True {
			return result
		}
		detail, err := evalAs(message, target, object, result.Detail)
		if err != nil {
			return health.Faulty(err)
		}
		result.Detail = detail
		return result
	}
}

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

// ErrNotEvaluated is a Finder's error for what it doesn't look at: it says nothing about the cluster.
var ErrNotEvaluated = errors.New("it isn't looked at here")

// Finder finds what the checks of one target look at.
type Finder interface {
	// Objects gives those that a check looks at; none where they don't exist.
	Objects(check *Check, ref Ref) ([]*unstructured.Unstructured, error)
	// Resolve gives where what a check looks at really is, once it was looked for: an object of a kind without namespaces is in none.
	Resolve(check *Check, ref Ref) Ref
	// Nodes gives those of the target's shoot.
	Nodes() ([]*corev1.Node, error)
}

// Result makes the check of a target, with what there is. The error says why it can't be made.
func (c *Check) Result(target *unstructured.Unstructured, there Finder, now time.Time) (health.Result, error) {
	result, err := c.result(target, there, now)
	if faulty, is := errors.AsType[expressionError](err); is {
		result, err = health.Faulty(faulty), nil
	}
	if err != nil {
		return health.Result{}, err
	}
	return c.withName(result), nil
}

func (c *Check) result(target *unstructured.Unstructured, there Finder, now time.Time) (health.Result, error) {
	if applies, err := c.Applies(target); err != nil || !applies {
		return health.Result{Status: health.True}, err
	}
	if c.least != nil {
		least, err := evalAs[int64](c.least, target, nil, 0)
		if err != nil {
			return health.Result{}, err
		}
		return c.compareNodes(least, there)
	}
	ref, err := c.Ref(target)
	if err != nil {
		return health.Result{}, err
	}
	objects, err := there.Objects(c, ref)
	ref = there.Resolve(c, ref)
	if err != nil {
		return health.Result{}, fmt.Errorf("read %s: %w", c.called(ref), err)
	}
	objects, err = c.Filter(target, objects)
	switch {
	case err != nil:
		return health.Result{}, err
	case len(objects) == 0:
		return health.NothingFound(c.OnMissing, c.missing(ref), c.Timeout), nil
	case c.desired != nil:
		return c.judgeDesired(ref, target, objects, there)
	}
	return c.judgeAll(target, objects, now), nil
}
