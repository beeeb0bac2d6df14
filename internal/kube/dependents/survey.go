package dependents

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/client-go/util/workqueue"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

// Objects is where a survey reads. Errors are those of the API server.
type Objects interface {
	// Targets gives at most so many objects of a kind that a selector takes, and whether there are more.
	Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, most int) (objects []*unstructured.Unstructured, more bool, err error)
	// Find gives what a check looks at; none where it doesn't exist.
	Find(ctx context.Context, ref registration.Ref) ([]*unstructured.Unstructured, error)
	// Resolve gives where that really is: an object of a kind without namespaces is in none.
	Resolve(ref registration.Ref) registration.Ref
	// Namespace gives the labels of a namespace.
	Namespace(ctx context.Context, name string) (labels.Set, error)
	// Layout says how a kind keeps conditions.
	Layout(ctx context.Context, kind schema.GroupVersionKind) (health.Layout, error)
	// Served says whether the API server knows a kind.
	Served(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	// Types gives those of the kinds' fields, as far as they can be known; the error is why others can't. A kind that isn't served, or
	// whose fields are free, has none.
	Types(ctx context.Context, kinds []schema.GroupVersionKind) (map[schema.GroupVersionKind]*decl.DeclType, error)
	// Kubeconfig says why a shoot's kubeconfig is never used; "" when it is, or there is none.
	Kubeconfig(ctx context.Context, namespace string, secret v1alpha1.SecretKey) (unsafe string, err error)
}

// Survey asks the planner of HealthCheckRegistrations.
type Survey struct {
	Objects Objects
	// Stored are the registrations that decide conditions already.
	Stored func(ctx context.Context) ([]*v1alpha1.HealthCheckRegistration, error)
	// Read bounds how many objects of the targets' kind are read, Check how many of them are looked at.
	Read, Check int
	// Within bounds how long it may take; 0 doesn't.
	Within time.Duration
	// State says what a stored registration may do now, and why no more; nil takes all to be in force, as rules do.
	State func(hcr *v1alpha1.HealthCheckRegistration) (lifecycle.State, string)
	// Known has the stored registrations that were read before.
	Known *Known
}

// atOnce are how many targets are looked at side by side.
const atOnce = 16

// Forecast tells what a registration would do. It fails with guard.ErrNotKnown when that isn't known in time.
func (s *Survey) Forecast(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, _ limit.Limits, now time.Time) (registration.Forecast, error) {
	if s.Within > 0 {
		bounded, cancel := context.WithTimeout(ctx, s.Within)
		defer cancel()
		ctx = bounded
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		return registration.Forecast{}, nil // which its terms say
	}
	stored, err := s.Stored(ctx)
	if err != nil {
		return registration.Forecast{}, notKnown(fmt.Errorf("read HealthCheckRegistrations: %w", err))
	}
	others := s.others(stored, reg)
	forecast := registration.Forecast{Cycles: reg.Cycles(registrations(others)), OtherShapes: reg.OtherShapes(registrations(others))}
	if reg.Kind.Group == "" { // core kinds take none, which the rules over the object say
		return forecast, nil
	}
	q := &query{Survey: s, reg: reg, forecast: &forecast, open: breakerOf(hcr, stored), state: lifecycle.Active, now: now}
	if s.State != nil {
		q.state, q.why = s.State(hcr)
	}
	if err := q.kinds(ctx); err != nil {
		return forecast, notKnown(err)
	}
	if err := q.targets(ctx, others); err != nil {
		return forecast, notKnown(err)
	}
	types, err := q.Objects.Types(ctx, reg.TypedKinds())
	if err != nil {
		forecast.Items.Untyped = notKnown(err)
	}
	forecast.TypeErrors, forecast.UndefinedFields, err = reg.TypeErrors(types)
	return forecast, err
}

func notKnown(err error) error { return fmt.Errorf("%w: %w", guard.ErrNotKnown, err) }

// query is one survey for one registration.
type query struct {
	*Survey
	reg      *registration.Registration
	forecast *registration.Forecast
	now      time.Time
	layout   health.Layout
	// open is the registration's breaker; nil while it is closed.
	open *limit.Opening
	// state of the registration, and why it may do no more.
	state lifecycle.State
	why   string
	// served: the kind of the targets is.
	served bool
}

// kinds tells of those that aren't served or can't be read, and how targets keep conditions.
func (q *query) kinds(ctx context.Context) error {
	for _, kind := range q.reg.Kinds() {
		switch served, err := q.Objects.Served(ctx, kind); {
		case err != nil:
			return err
		case !served:
			q.forecast.UnknownKinds = append(q.forecast.UnknownKinds, kind.Kind+" of "+kind.GroupVersion().String())
		}
		if kind == q.reg.Kind && len(q.forecast.UnknownKinds) > 0 {
			return nil // it comes first, and nothing is there to look at
		}
	}
	q.served = true
	layout, err := q.Objects.Layout(ctx, q.reg.Kind)
	switch {
	case apierrors.IsForbidden(err):
		q.unreadable(err)
	case err != nil:
		return err
	}
	q.layout, q.forecast.Unwritable = layout, q.reg.Unwritable(layout)
	return nil
}

// unreadable takes in what Autohealer, or who asks, may not read.
func (q *query) unreadable(err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		d := status.Status().Details
		resource := schema.GroupResource{Group: d.Group, Resource: d.Kind}.String()
		sample.Once(&q.forecast.UnreadableKinds, resource)
	}
}

// targets looks at the targets among the first objects of the kind.
func (q *query) targets(ctx context.Context, others []registration.ActiveRegistration) error {
	if q.forecast.AllRead = true; !q.served {
		return nil
	}
	objects, more, err := q.Objects.Targets(ctx, q.reg.Kind, q.reg.Labels(), q.Read)
	switch {
	case apierrors.IsForbidden(err):
		q.unreadable(err)
		q.forecast.AllRead, q.forecast.Items.More = false, true
		return nil
	case err != nil:
		return fmt.Errorf("list each %s: %w", q.reg.Kind.Kind, err)
	}
	selected, err := q.selected(ctx, objects, others)
	if err != nil {
		return err
	}
	count := len(selected)
	selected = selected[:min(count, q.Check)]
	workqueue.ParallelizeUntil(ctx, atOnce, len(selected), func(i int) { q.read(ctx, &selected[i]) })
	if ctx.Err() != nil { // not all was read
		return ctx.Err()
	}
	q.forecast.Plan(selected, count, more, q.open, q.now)
	for _, c := range selected {
		q.notice(c.Finder.(*found))
	}
	q.statusless(selected)
	return nil
}

// selected are those objects that are targets, with what decides about them.
func (q *query) selected(ctx context.Context, objects []*unstructured.Unstructured, others []registration.ActiveRegistration) ([]registration.TargetInput, error) {
	namespaces := map[string]labels.Set{}
	var all []registration.TargetInput
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		name := object.GetNamespace()
		if _, known := namespaces[name]; !known && name != "" && q.reg.ByNamespace(registrations(others)) {
			of, err := q.Objects.Namespace(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("read the labels of namespace %s: %w", name, err)
			}
			namespaces[name] = of
		}
		if !q.reg.Selects(object, namespaces[name]) {
			continue
		}
		c := registration.TargetInput{
			Target: object, Registrations: []registration.ActiveRegistration{{Registration: q.reg, State: q.state, Reason: q.why}}, Layout: q.layout, Finder: &found{target: object, by: map[string]finding{}},
		}
		for _, o := range others {
			if o.Kind.GroupKind() == q.reg.Kind.GroupKind() && o.Selects(object, namespaces[name]) {
				c.Registrations = append(c.Registrations, o)
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// read reads what the checks of one target look at.
func (q *query) read(ctx context.Context, c *registration.TargetInput) {
	there := c.Finder.(*found)
	for _, r := range registrations(c.Registrations) {
		if r.Kind != q.reg.Kind {
			continue // the object isn't read in that version
		}
		for _, check := range r.Checks {
			ref, err := check.Ref(c.Target)
			if !check.InSeed() || err != nil {
				continue // reported by the check itself
			}
			if _, known := there.by[keyOf(ref)]; known {
				continue
			}
			objects, err := q.Objects.Find(ctx, ref)
			if apierrors.IsForbidden(err) {
				there.forbidden = append(there.forbidden, err)
			}
			there.by[keyOf(ref)] = finding{objects, err, q.Objects.Resolve(ref)}
		}
	}
	if q.reg.Kubeconfig != nil {
		there.unsafe, _ = q.Objects.Kubeconfig(ctx, c.Target.GetNamespace(), *q.reg.Kubeconfig) // one that can't be read is no finding
	}
}

func registrations(active []registration.ActiveRegistration) []*registration.Registration {
	all := make([]*registration.Registration, len(active))
	for i := range active {
		all[i] = active[i].Registration
	}
	return all
}

// notice takes in what was found of a target, for the rules.
func (q *query) notice(there *found) {
	name := there.target.GetName()
	if namespace := there.target.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	for _, err := range there.forbidden {
		q.unreadable(err)
	}
	if q.reg.IgnoresWorkerless(there.target) {
		sample.Once(&q.forecast.Workerless, name)
	}
	if there.unsafe != "" {
		sample.Once(&q.forecast.UnsafeKubeconfigs, fmt.Sprintf("%s/%s (%s)", there.target.GetNamespace(), q.reg.Kubeconfig.SecretName, there.unsafe))
	}
}

// statusless tells of checks that judge by status what says nothing to it, in all that they look at.
func (q *query) statusless(selected []registration.TargetInput) {
	for _, check := range q.reg.Checks {
		var objects []*unstructured.Unstructured
		for _, c := range selected {
			objects = append(objects, c.Finder.(*found).of(check)...)
		}
		if what := check.Statusless(objects); what != "" {
			q.forecast.StatuslessChecks = append(q.forecast.StatuslessChecks, what)
		}
	}
}
