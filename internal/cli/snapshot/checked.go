package snapshot

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// targetsRead and targetsLooked bound what is reported of one registration.
const (
	maxTargetsRead    = 20000
	maxTargetsChecked = 1000
)

// ForecastRegistration tells what a registration would have done at the snapshot's moment. What it names is read when it is
// asked where the snapshot was read live, and is that of the file otherwise.
func (f *Facts) ForecastRegistration(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, limits limit.Limits, _ time.Time) (registration.Forecast, error) {
	if err := f.reads(hcr); err != nil {
		return registration.Forecast{}, err
	}
	return f.checksOf(f.checked()).Forecast(ctx, hcr, limits, f.snapshot.ServerTime.Time)
}

// reads says what a registration reads of objects that a file doesn't have of them.
func (f *Facts) reads(hcr *v1alpha1.HealthCheckRegistration) error {
	lacking := f.fields.Missing(fieldsOf(hcr))
	if f.snapshot.live != nil || !f.snapshot.Trimmed || len(lacking) == 0 {
		return nil
	}
	return notInFacts("%s, which no stored registration reads, is", strings.Join(lacking[:min(3, len(lacking))], ", "))
}

// storedFields are what stored registrations read.
func storedFields(s *Snapshot) registration.Fields {
	return fieldsOf(allOf[v1alpha1.HealthCheckRegistration](s.Objects)...)
}

func fieldsOf(all ...*v1alpha1.HealthCheckRegistration) registration.Fields {
	fields := registration.Fields{}
	for _, hcr := range all {
		if reg, problems := registration.Read(hcr); len(problems) == 0 {
			fields.Add(reg)
		}
	}
	return fields
}

func (f *Facts) checksOf(objects dependents.Objects) *dependents.Survey {
	return &dependents.Survey{
		Objects: objects, Read: maxTargetsRead, Check: maxTargetsChecked, Known: &f.known,
		Stored: func(context.Context) ([]*v1alpha1.HealthCheckRegistration, error) { return f.registrations(), nil },
	}
}

// registrations are those that are stored, or were applied since.
func (f *Facts) registrations() []*v1alpha1.HealthCheckRegistration {
	return allOf[v1alpha1.HealthCheckRegistration](f.snapshot.Objects)
}

// ChecksView is what one stored HealthCheckRegistration makes of one object.
type ChecksView struct {
	Registration *v1alpha1.HealthCheckRegistration
	// Target is nil when the object isn't one of it.
	Target *registration.TargetForecast
	// Unwritable says why targets take no conditions; "" when they do.
	Unwritable string
	// Unreadable says why the registration says nothing; "" when it can be read.
	Unreadable string
}

// CheckedView is what stored HealthCheckRegistrations make of one object.
type CheckedView struct {
	Checks []ChecksView
	// Undecided are its condition types that are to go: nobody decides them any more.
	Undecided []string
}

// TargetKinds are the kinds of stored registrations' targets, in lower case and sorted.
func (f *Facts) TargetKinds() []string {
	var kinds []string
	for _, hcr := range f.registrations() {
		kinds = append(kinds, strings.ToLower(hcr.Spec.Target.Kind))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// ViewChecks gives what the stored registrations for objects of a kind make of one under a policy, by their names. Kind is in lower
// case, as people write it. Found is false when there is no such object.
func (f *Facts) ViewChecks(ctx context.Context, policy guardrail.Policy, kind string, key types.NamespacedName) (of CheckedView, found bool, err error) {
	doubt := policy.Frozen()
	for _, hcr := range f.registrations() {
		if !isAbout(hcr, kind) {
			continue
		}
		only := &singleTarget{Objects: f.checked(), key: key}
		view := ChecksView{Registration: hcr}
		reg, problems := registration.Read(hcr)
		view.Unreadable = strings.Join(problems, "; ")
		survey := f.checksOf(only)
		survey.State = func(hcr *v1alpha1.HealthCheckRegistration) (lifecycle.State, string) {
			return StateOfChecks(hcr, policy)
		}
		doubt = doubt || hcr.DeletionTimestamp == nil && verdictOf(hcr) == nil || view.Unreadable != ""
		forecast, err := survey.Forecast(ctx, hcr, policy.Limits, f.snapshot.ServerTime.Time)
		if err != nil {
			return of, false, err
		}
		if of.Undecided, err = survey.Undecided(ctx, reg.Kind, f.snapshot.ServerTime.Time); err != nil {
			return of, false, err
		}
		found = found || only.found
		if view.Unwritable = forecast.Unwritable; len(forecast.Items.Targets) > 0 {
			view.Target = &forecast.Items.Targets[0]
		}
		of.Checks = append(of.Checks, view)
	}
	if doubt { // what no known one decides may be that one's
		of.Undecided = nil
	}
	return of, found, nil
}

// isAbout says whether a registration is for objects of a kind, as people write it.
func isAbout(hcr *v1alpha1.HealthCheckRegistration, kind string) bool {
	called := strings.ToLower(hcr.Spec.Target.Kind)
	return called == kind || called+"s" == kind
}

// singleTarget has one target.
type singleTarget struct {
	dependents.Objects
	key   types.NamespacedName
	found bool
}

// Targets gives the one, if it is there.
func (o *singleTarget) Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, _ int) (one []*unstructured.Unstructured, more bool, err error) {
	one, err = o.Find(ctx, registration.Ref{Kind: kind, Namespace: o.key.Namespace, Name: o.key.Name})
	if err == nil && len(one) == 0 { // of a kind without namespaces
		one, err = o.Find(ctx, registration.Ref{Kind: kind, Name: o.key.Name})
	}
	o.found = o.found || len(one) > 0
	return slices.DeleteFunc(one, func(u *unstructured.Unstructured) bool { return !selector.Matches(labels.Set(u.GetLabels())) }), false, err
}

// Record asks what the stored ProbeConfigs and HealthCheckRegistrations would do, so that the answers to what is asked on the way are
// there for the file. Warn is called with what couldn't be read.
func (f *Facts) Record(ctx context.Context, warn func(text string)) error {
	for _, hcr := range f.registrations() {
		if _, err := f.checksOf(allTargets{f.checked()}).Forecast(ctx, hcr, limit.Builtin(), f.snapshot.ServerTime.Time); err != nil {
			warn("not all is known of what HealthCheckRegistration " + hcr.Name + " would do: " + err.Error())
		}
	}
	if f.snapshot.Complete("ProbeConfig") {
		f.snapshot.warn = warn
		for _, pc := range f.probers() {
			if _, err := f.survey().Forecast(ctx, pc, limit.Builtin(), time.Time{}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// allTargets reads all targets of a kind, so that the file serves another registration for it, too.
type allTargets struct{ dependents.Objects }

// Targets gives those that a selector takes.
func (w allTargets) Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, most int) ([]*unstructured.Unstructured, bool, error) {
	objects, more, err := w.Objects.Targets(ctx, kind, labels.Everything(), most)
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !selector.Matches(labels.Set(o.GetLabels())) }), more, err
}
