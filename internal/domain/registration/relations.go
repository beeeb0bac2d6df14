package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Cycles are the ways by which what a registration writes comes back to what it reads, by way of others' conditions, such as
// "Worker → Infrastructure → Worker". One that writes no conditions is in none; of this one, only its output tells: what observes
// is about to write.
func (r *Registration) Cycles(others []*Registration) []string {
	if r.Output == v1alpha1.OutputRegistrationOnly {
		return nil
	}
	var cycles []string
	for _, from := range r.readKinds() {
		if back := shortestPath(from, r.Kind.GroupKind(), others); back != nil {
			names := []string{r.Kind.Kind}
			for _, kind := range back {
				names = append(names, kind.Kind)
			}
			sample.Once(&cycles, strings.Join(names, " → "))
		}
	}
	return cycles
}

// shortestPath is the shortest from one kind to another over what registrations read; nil when there is none.
func shortestPath(from, to schema.GroupKind, over []*Registration) []schema.GroupKind {
	paths, seen := [][]schema.GroupKind{{from}}, sets.New(from)
	for len(paths) > 0 {
		path := paths[0]
		paths = paths[1:]
		last := path[len(path)-1]
		if last == to {
			return path
		}
		for _, r := range over {
			if r.Kind.GroupKind() != last || !r.Writes() {
				continue
			}
			for _, next := range r.readKinds() {
				if !seen.Has(next) {
					seen.Insert(next)
					paths = append(paths, append(slices.Clone(path), next))
				}
			}
		}
	}
	return nil
}

// readKinds are the kinds whose conditions checks of the seed look at.
func (r *Registration) readKinds() []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, c := range r.Checks {
		if kind := c.Kind.GroupKind(); c.byConditions && c.InSeed() && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// OtherShapes are the condition types that another registration writes to objects of the same kind in another shape, each with
// its name.
func (r *Registration) OtherShapes(others []*Registration) []string {
	var all []string
	if !r.hasExplicitShape() {
		return nil
	}
	for _, o := range others {
		if o.Kind.GroupKind() != r.Kind.GroupKind() || !o.hasExplicitShape() || o.Output == r.Output || r.disjoint(o) {
			continue
		}
		for _, t := range o.ConditionTypes() {
			if r.Decides(t) {
				sample.Once(&all, fmt.Sprintf("%s (%s: %s)", t, o.Name, o.Output))
			}
		}
	}
	return all
}

// disjoint says whether no object can be a target of both, by their types.
func (r *Registration) disjoint(o *Registration) bool {
	return r.targetType != "" && o.targetType != "" && r.targetType != o.targetType && slices.Equal(r.typePath, o.typePath)
}

// hasExplicitShape: the shape is said, and not that of the kind.
func (r *Registration) hasExplicitShape() bool {
	return r.Output == v1alpha1.OutputGardener || r.Output == v1alpha1.OutputConditions
}

// workersAt are where kinds of Gardener have their workers.
var workersAt = map[schema.GroupKind][]string{
	{Group: "extensions.gardener.cloud", Kind: "Worker"}: {"spec", "pools"},
	{Group: "core.gardener.cloud", Kind: "Shoot"}:        {"spec", "provider", "workers"},
}

// IgnoresWorkerless says whether EveryNodeReady would be decided for a target that has no workers: it is one of a workerless
// Shoot, which has no such condition.
func (r *Registration) IgnoresWorkerless(target *unstructured.Unstructured) bool {
	path, known := workersAt[r.Kind.GroupKind()]
	if !known {
		return false
	}
	if workers, _, _ := unstructured.NestedSlice(target.Object, path...); len(workers) > 0 {
		return false
	}
	return slices.ContainsFunc(r.Checks, func(c *Check) bool {
		asks, err := c.Applies(target)
		return c.ConditionType == everyNodeReady && asks && err == nil
	})
}

const everyNodeReady = "EveryNodeReady"

// Statusless reports a check that judges by status what kstatus finds healthy whatever it is like: of what kind the objects are that were found, and which
// conditions they have. It is "" where kstatus reads a condition of one of them, and where there are none.
func (c *Check) Statusless(objects []*unstructured.Unstructured) string {
	if !c.byStatus || len(objects) == 0 || slices.ContainsFunc(objects, health.StatusIsConclusive) {
		return ""
	}
	var types []string
	for _, object := range objects {
		for _, t := range health.ConditionTypes(object) {
			sample.Once(&types, t)
		}
	}
	return fmt.Sprintf("%s (%s has %s)", c.Name, c.Kind.Kind, cmp.Or(strings.Join(types, ", "), "no conditions"))
}

// Labels select the targets.
func (r *Registration) Labels() labels.Selector { return r.selector }

// Namespaces select those that targets are in, by labels.
func (r *Registration) Namespaces() labels.Selector { return r.namespaces }

// ByNamespace says whether this registration, or one of the others for its kind, selects targets by their namespaces.
func (r *Registration) ByNamespace(others []*Registration) bool {
	return slices.ContainsFunc(append([]*Registration{r}, others...), func(o *Registration) bool {
		return o.Kind.GroupKind() == r.Kind.GroupKind() && !o.namespaces.Empty()
	})
}

// Kinds are that of the targets, and those that checks of the seed look at.
func (r *Registration) Kinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{r.Kind}
	for _, c := range r.Checks {
		if c.InSeed() && !slices.Contains(kinds, c.Kind) {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds
}

// ShapeFor is the shape of conditions on targets that keep them like this.
func (r *Registration) ShapeFor(layout health.Layout) health.Shape {
	if r.hasExplicitShape() {
		return health.Shape(r.Output)
	}
	return layout.Shape
}

// Unwritable says why the registration's conditions can't be on targets that keep them like this; "" when they can, or aren't to be.
func (r *Registration) Unwritable(layout health.Layout) string {
	switch {
	case r.Output == v1alpha1.OutputRegistrationOnly:
		return ""
	case layout.Problem == "" && layout.NoProgressing && r.Output == v1alpha1.OutputGardener:
		return "output: Gardener has status Progressing, which the schema of status.conditions doesn't allow; leave output out"
	}
	return layout.Problem
}

// Decides says whether a check decides a condition type.
func (r *Registration) Decides(conditionType string) bool {
	return slices.ContainsFunc(r.Checks, func(c *Check) bool { return c.ConditionType == conditionType })
}

// Writes says whether the registration's conditions are written at all.
func (r *Registration) Writes() bool {
	return !r.Observes && r.Output != v1alpha1.OutputRegistrationOnly
}
