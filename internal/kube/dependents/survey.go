package dependents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	decl "k8s.io/apiserver/pkg/cel"

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
	// Types gives those of the kinds' fields, as far as they can be told; the error is why others can't. A kind that isn't served, or
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
	// Read bounds how many objects of the targets' kind are read, Look how many of them are looked at.
	Read, Look int
	// Within bounds how long it may take; 0 doesn't.
	Within time.Duration
	// State says what a stored registration may do now, and why no more; nil takes all to be in force, as rules do.
	State func(hcr *v1alpha1.HealthCheckRegistration) (lifecycle.State, string)
	// Known has the stored registrations that were read before; nil reads them each time.
	Known *Known
}

// atOnce are how many targets are looked at side by side.
const atOnce = 16

// Forecast tells what a registration would do. It fails with guard.ErrNotKnown when that can't be told in time.
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
	l := &look{Survey: s, reg: reg, forecast: &forecast, open: breakerOf(hcr, stored), state: lifecycle.Active, now: now}
	if s.State != nil {
		l.state, l.why = s.State(hcr)
	}
	if err := l.kinds(ctx); err != nil {
		return forecast, notKnown(err)
	}
	if err := l.targets(ctx, others); err != nil {
		return forecast, notKnown(err)
	}
	types, err := l.Objects.Types(ctx, reg.TypedKinds())
	if err != nil {
		forecast.Items.Untyped = notKnown(err)
	}
	forecast.TypeErrors, forecast.UndefinedFields, err = reg.TypeErrors(types)
	return forecast, err
}

func notKnown(err error) error { return fmt.Errorf("%w: %w", guard.ErrNotKnown, err) }

// look is one survey for one registration.
type look struct {
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
func (l *look) kinds(ctx context.Context) error {
	for _, kind := range l.reg.Kinds() {
		switch served, err := l.Objects.Served(ctx, kind); {
		case err != nil:
			return err
		case !served:
			l.forecast.UnknownKinds = append(l.forecast.UnknownKinds, kind.Kind+" of "+kind.GroupVersion().String())
		}
		if kind == l.reg.Kind && len(l.forecast.UnknownKinds) > 0 {
			return nil // it comes first, and nothing is there to look at
		}
	}
	l.served = true
	layout, err := l.Objects.Layout(ctx, l.reg.Kind)
	switch {
	case apierrors.IsForbidden(err):
		l.unreadable(err)
	case err != nil:
		return err
	}
	l.layout, l.forecast.Unwritable = layout, l.reg.Unwritable(layout)
	return nil
}

// unreadable takes in what Autohealer, or who asks, may not read.
func (l *look) unreadable(err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		d := status.Status().Details
		resource := schema.GroupResource{Group: d.Group, Resource: d.Kind}.String()
		sample.Once(&l.forecast.UnreadableKinds, resource)
	}
}

// targets looks at the targets among the first objects of the kind.
func (l *look) targets(ctx context.Context, others []registration.ActiveRegistration) error {
	if l.forecast.AllRead = true; !l.served {
		return nil
	}
	objects, more, err := l.Objects.Targets(ctx, l.reg.Kind, l.reg.Labels(), l.Read)
	switch {
	case apierrors.IsForbidden(err):
		l.unreadable(err)
		l.forecast.AllRead, l.forecast.Items.More = false, true
		return nil
	case err != nil:
		return fmt.Errorf("list each %s: %w", l.reg.Kind.Kind, err)
	}
	selected, err := l.selected(ctx, objects, others)
	if err != nil {
		return err
	}
	count := len(selected)
	if selected = selected[:min(count, l.Look)]; len(selected) > 0 {
		l.ofTargets(ctx, selected)
	}
	l.forecast.Plan(selected, count, more, l.open, l.now)
	for _, c := range selected {
		l.notice(c.Finder.(*found))
	}
	l.statusless(selected)
	return ctx.Err()
}

// selected are the circumstances of those objects that are targets.
func (l *look) selected(ctx context.Context, objects []*unstructured.Unstructured, others []registration.ActiveRegistration) ([]registration.TargetInput, error) {
	namespaces := map[string]labels.Set{}
	var all []registration.TargetInput
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		name := object.GetNamespace()
		if _, known := namespaces[name]; !known && name != "" && l.reg.ByNamespace(registrations(others)) {
			of, err := l.Objects.Namespace(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("read the labels of namespace %s: %w", name, err)
			}
			namespaces[name] = of
		}
		if !l.reg.Selects(object, namespaces[name]) {
			continue
		}
		c := registration.TargetInput{
			Target: object, Registrations: []registration.ActiveRegistration{{Registration: l.reg, State: l.state, Reason: l.why}}, Layout: l.layout, Finder: &found{by: map[string]finding{}},
		}
		for _, o := range others {
			if o.Kind.GroupKind() == l.reg.Kind.GroupKind() && o.Selects(object, namespaces[name]) {
				c.Registrations = append(c.Registrations, o)
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// ofTargets reads what the checks of targets look at, of several side by side.
func (l *look) ofTargets(ctx context.Context, selected []registration.TargetInput) {
	var reading sync.WaitGroup
	turn := make(chan struct{}, atOnce)
	for i := range selected {
		turn <- struct{}{}
		reading.Go(func() {
			l.read(ctx, &selected[i])
			<-turn
		})
	}
	reading.Wait()
}

// read reads what the checks of one target look at.
func (l *look) read(ctx context.Context, c *registration.TargetInput) {
	there := c.Finder.(*found)
	there.target, there.reg = c.Target, l.reg
	for _, r := range registrations(c.Registrations) {
		if r.Kind != l.reg.Kind {
			continue // the object isn't read in that version
		}
		for _, check := range r.Checks {
			ref, err := check.Ref(c.Target)
			if !check.InSeed() || err != nil {
				continue // told by the check itself
			}
			if _, known := there.by[keyOf(ref)]; known {
				continue
			}
			objects, err := l.Objects.Find(ctx, ref)
			if apierrors.IsForbidden(err) {
				there.forbidden = append(there.forbidden, err)
			}
			there.by[keyOf(ref)] = finding{objects, err, l.Objects.Resolve(ref)}
		}
	}
	if l.reg.Kubeconfig != nil {
		there.unsafe, _ = l.Objects.Kubeconfig(ctx, c.Target.GetNamespace(), *l.reg.Kubeconfig) // one that can't be read is no finding
	}
}

func registrations(deciders []registration.ActiveRegistration) []*registration.Registration {
	all := make([]*registration.Registration, len(deciders))
	for i := range deciders {
		all[i] = deciders[i].Registration
	}
	return all
}

// notice takes in what was found of a target, for the rules.
func (l *look) notice(there *found) {
	name := there.target.GetName()
	if namespace := there.target.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	for _, err := range there.forbidden {
		l.unreadable(err)
	}
	if l.reg.IgnoresWorkerless(there.target) {
		sample.Once(&l.forecast.Workerless, name)
	}
	if there.unsafe != "" {
		sample.Once(&l.forecast.UnsafeKubeconfigs, fmt.Sprintf("%s/%s (%s)", there.target.GetNamespace(), l.reg.Kubeconfig.SecretName, there.unsafe))
	}
}

// statusless tells of checks that judge by status what says nothing to it, in all that they look at.
func (l *look) statusless(selected []registration.TargetInput) {
	for _, check := range l.reg.Checks {
		var objects []*unstructured.Unstructured
		for _, c := range selected {
			objects = append(objects, c.Finder.(*found).of(check)...)
		}
		if what := check.Statusless(objects); what != "" {
			l.forecast.StatuslessChecks = append(l.forecast.StatuslessChecks, what)
		}
	}
}
