// Package dependents tells what HealthCheckRegistrations would do, before they do it: it reads targets and what their checks look
// at, and asks the planner. It writes nothing, and asks no shoot.
package dependents

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// Known are stored registrations made ready, by UID: compiling their expressions takes milliseconds. It is safe for concurrent use, and the
// zero value is empty.
type Known struct {
	mu  sync.Mutex
	all map[types.UID]knownRegistration
}

// knownRegistration is a registration made ready, nil when it can't be read.
type knownRegistration struct {
	*registration.Registration
	generation int64
}

// read makes a stored registration ready; nil when it can't be read.
func (k *Known) read(hcr *v1alpha1.HealthCheckRegistration) *registration.Registration {
	k.mu.Lock()
	known, ok := k.all[hcr.UID]
	k.mu.Unlock()
	if ok && hcr.UID != "" && known.generation == hcr.Generation {
		return known.Registration
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		reg = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[types.UID]knownRegistration{}
	}
	k.all[hcr.UID] = knownRegistration{reg, hcr.Generation}
	return reg
}

// keepStored drops those that aren't stored any more, once it has more than are stored.
func (k *Known) keepStored(stored []*v1alpha1.HealthCheckRegistration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) <= len(stored) {
		return
	}
	are := sets.New[types.UID]()
	for _, hcr := range stored {
		are.Insert(hcr.UID)
	}
	maps.DeleteFunc(k.all, func(uid types.UID, _ knownRegistration) bool { return !are.Has(uid) })
}

// others are the stored registrations but for the one of this name, and those that can't be read.
func (s *Survey) others(stored []*v1alpha1.HealthCheckRegistration, reg *registration.Registration) []registration.ActiveRegistration {
	var all []registration.ActiveRegistration
	s.Known.keepStored(stored)
	for _, hcr := range stored {
		if hcr.Name == reg.Name || hcr.DeletionTimestamp != nil {
			continue
		}
		if other := s.active(hcr); other.Registration != nil {
			all = append(all, other)
		}
	}
	return all
}

// active is a stored registration with what it may do; without a Registration where it can't be read.
func (s *Survey) active(hcr *v1alpha1.HealthCheckRegistration) registration.ActiveRegistration {
	d := registration.ActiveRegistration{Registration: s.Known.read(hcr), State: lifecycle.Active, BreakerOpen: breakerOf(hcr, []*v1alpha1.HealthCheckRegistration{hcr}) != nil}
	if s.State != nil {
		d.State, d.Reason = s.State(hcr)
	}
	return d
}

// Undecided gives the condition types of the one object of a kind that are to go, by what all stored registrations decide.
func (s *Survey) Undecided(ctx context.Context, kind schema.GroupVersionKind, now time.Time) (types []string, err error) {
	objects, _, err := s.Objects.Targets(ctx, kind, labels.Everything(), 1)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	active, err := s.selecting(ctx, objects[0])
	if err != nil {
		return nil, err
	}
	c := registration.TargetInput{Target: objects[0], Registrations: active}
	said := make([]registration.CheckResults, len(active))
	for i := range active {
		active[i] = active[i].OnTarget(c.Target, now)
		said[i] = active[i].RunChecks(c.Target, func() (decided map[string][]health.Result, _ []string) { // whatever its checks say
			decided = map[string][]health.Result{}
			for _, t := range active[i].ConditionTypes() {
				decided[t] = nil
			}
			return decided, nil
		})
	}
	for _, step := range c.Plan(said, now).Steps {
		if step.Remove {
			types = append(types, step.Condition.Type)
		}
	}
	return types, nil
}

// selecting are the stored registrations that select an object.
func (s *Survey) selecting(ctx context.Context, object *unstructured.Unstructured) (all []registration.ActiveRegistration, err error) {
	stored, err := s.Stored(ctx)
	if err != nil {
		return nil, err
	}
	namespace := labels.Set(nil)
	for _, hcr := range stored {
		d := s.active(hcr)
		if d.Registration == nil || d.Kind.GroupKind() != object.GroupVersionKind().GroupKind() {
			continue
		}
		if namespace == nil && object.GetNamespace() != "" && !d.Namespaces().Empty() {
			if namespace, err = s.Objects.Namespace(ctx, object.GetNamespace()); err != nil {
				return nil, err
			}
		}
		if d.Selects(object, namespace) {
			all = append(all, d)
		}
	}
	return all, nil
}

// breakerOf is the breaker of the stored registration of this name; nil while it is closed, or was reset.
func breakerOf(hcr *v1alpha1.HealthCheckRegistration, stored []*v1alpha1.HealthCheckRegistration) *limit.Opening {
	for _, is := range stored {
		b := is.Status.Breaker
		if is.Name != hcr.Name || b == nil || b.ID == is.Annotations[v1alpha1.AnnotationResetBreaker] || b.ID == hcr.Annotations[v1alpha1.AnnotationResetBreaker] {
			continue
		}
		return &limit.Opening{ID: b.ID, OpenedAt: b.OpenedAt.Time}
	}
	return nil
}

// found is what was read for one target's checks.
type found struct {
	target    *unstructured.Unstructured
	by        map[string]finding
	forbidden []error
	unsafe    string
}

type finding struct {
	objects []*unstructured.Unstructured
	err     error
	at      registration.Ref
}

func keyOf(ref registration.Ref) string {
	return fmt.Sprint(ref.Kind, ref.Namespace, "/", ref.Name, ref.Selector)
}

// Objects gives what a check looks at, of the seed alone.
func (f *found) Objects(check *registration.Check, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if check.Shoot {
		return nil, registration.ErrNotEvaluated
	}
	of := f.by[keyOf(ref)]
	return of.objects, of.err
}

// Resolve gives where what a check looks at really is.
func (f *found) Resolve(_ *registration.Check, ref registration.Ref) registration.Ref {
	if of, known := f.by[keyOf(ref)]; known {
		return of.at
	}
	return ref
}

// Nodes are the shoot's.
func (f *found) Nodes() ([]*corev1.Node, error) { return nil, registration.ErrNotEvaluated }

// of are the objects that the check looks at here.
func (f *found) of(check *registration.Check) []*unstructured.Unstructured {
	ref, err := check.Ref(f.target)
	if !check.InSeed() || err != nil {
		return nil
	}
	objects, _ := check.Filter(f.target, f.by[keyOf(ref)].objects) // that the expression fails the check itself tells
	return objects
}
