package registration

import (
	"errors"
	"fmt"
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
	if r.suspended == nil {
		return false, nil
	}
	suspended, err := evalAs[bool](r.suspended, target, nil)
	if err != nil {
		return true, fmt.Errorf("evaluate suspendWhen: %w", err)
	}
	return suspended, nil
}

// Applies says whether the check is to be made of this target: one that isn't counts as successful.
func (c *Check) Applies(target *unstructured.Unstructured) (bool, error) {
	if c.when == nil {
		return true, nil
	}
	asks, err := evalAs[bool](c.when, target, nil)
	if err != nil {
		return false, fmt.Errorf("evaluate when: %w", err)
	}
	return asks, nil
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
	if c.namespace != nil {
		if ref.Namespace, err = evalAs[string](c.namespace, target, nil); err != nil {
			return Ref{}, fmt.Errorf("evaluate object.namespace: %w", err)
		}
	}
	if c.name == nil {
		return ref, nil
	}
	if ref.Name, err = evalAs[string](c.name, target, nil); err != nil {
		return Ref{}, fmt.Errorf("evaluate object.name: %w", err)
	}
	if ref.Name == "" {
		return Ref{}, errors.New("object.name gave an empty name")
	}
	return ref, nil
}

// Filter gives those of the objects that were found which the check looks at.
func (c *Check) Filter(target *unstructured.Unstructured, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if c.where == nil {
		return objects, nil
	}
	var chosen []*unstructured.Unstructured
	for _, object := range objects {
		is, err := evalAs[bool](c.where, target, object)
		if err != nil {
			return nil, fmt.Errorf("evaluate object.where of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if is {
			chosen = append(chosen, object)
		}
	}
	return chosen, nil
}

// Evaluate judges what was found of what the check looks at. The worst counts; nothing was found is what OnMissing says.
func (c *Check) Evaluate(ref Ref, target *unstructured.Unstructured, objects []*unstructured.Unstructured, now time.Time) health.Result {
	objects, err := c.Filter(target, objects)
	if err != nil {
		return c.withName(health.Faulty(err))
	}
	if len(objects) == 0 {
		return c.withName(health.NothingFound(c.OnMissing, c.missing(ref), c.Timeout))
	}
	worst := health.Result{Status: health.True}
	for _, object := range objects {
		switch r := c.judge(target, object, now); {
		case severity[r.Status] > severity[worst.Status]:
			worst = r
		case worst.Status == health.True && worst.Note == "": // of several, the first
			worst.Note = r.Note
		}
	}
	return c.withName(worst)
}

// Failed is the result of a check that couldn't be made.
func (c *Check) Failed(err error) health.Result { return c.withName(health.Error(err)) }

// severity orders statuses as the aggregate does.
var severity = map[health.Status]int{health.True: 0, health.Progressing: 1, health.Unknown: 2, health.False: 3}

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
	asked := []struct {
		what string
		is   health.Status
		text string
		of   *Expression
	}{
		{what: "failed", is: health.False, text: e.Failed},
		{what: "progressing", is: health.Progressing, text: e.Progressing},
		{what: "healthy", is: health.True, text: e.Healthy},
	}
	for i := range asked {
		if asked[i].text != "" {
			asked[i].of = r.compile(where+": cel."+asked[i].what, asked[i].text, cel.BoolType, true)
			c.byConditions = c.byConditions || asked[i].of.mayRead(varObject, "status", "conditions")
		}
	}
	var message *Expression
	if e.Message != "" {
		message = r.compile(where+": cel.message", e.Message, cel.StringType, true)
	}
	return func(target, object *unstructured.Unstructured, _ time.Time) health.Result {
		result := health.Result{Status: health.False, Timeout: c.Timeout, Detail: object.GetName() + " isn't healthy"}
		for _, a := range asked {
			if a.of == nil {
				continue
			}
			answer, err := evalAs[bool](a.of, target, object)
			if err != nil {
				return health.Faulty(fmt.Errorf("evaluate %s of %s %s: %w", a.what, object.GetKind(), object.GetName(), err))
			}
			if answer {
				result.Status = a.is
				break
			}
		}
		if message == nil || result.Status == health.True {
			return result
		}
		detail, err := evalAs[string](message, target, object)
		if err != nil {
			return health.Faulty(fmt.Errorf("evaluate message of %s %s: %w", object.GetKind(), object.GetName(), err))
		}
		result.Detail = detail
		return result
	}
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
	if asks, err := c.Applies(target); err != nil || !asks {
		if err != nil {
			return c.withName(health.Faulty(err)), nil
		}
		return c.withName(health.Result{Status: health.True}), nil
	}
	if c.least != nil {
		return c.judgeNodes(target, there)
	}
	ref, err := c.Ref(target)
	if err != nil {
		return c.withName(health.Faulty(err)), nil
	}
	objects, err := there.Objects(c, ref)
	ref = there.Resolve(c, ref)
	if err != nil {
		return health.Result{}, fmt.Errorf("read %s: %w", c.called(ref), err)
	}
	if c.desired != nil {
		return c.judgeDesired(ref, target, objects, there)
	}
	return c.Evaluate(ref, target, objects, now), nil
}
