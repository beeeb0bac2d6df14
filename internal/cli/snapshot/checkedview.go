package snapshot

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

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
		only := &only{Objects: checkedIn(f.snapshot), key: key}
		view := ChecksView{Registration: hcr}
		reg, problems := registration.Read(hcr)
		view.Unreadable = strings.Join(problems, "; ")
		survey := f.checksOf(only)
		survey.State = func(hcr *v1alpha1.HealthCheckRegistration) (lifecycle.State, string) {
			return StateOfChecks(hcr, policy)
		}
		doubt = doubt || !judged(hcr) || view.Unreadable != ""
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

// only has one target.
type only struct {
	dependents.Objects
	key   types.NamespacedName
	found bool
}

// Targets gives the one, if it is there.
func (o *only) Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, _ int) (one []*unstructured.Unstructured, more bool, err error) {
	one, err = o.Find(ctx, registration.Ref{Kind: kind, Namespace: o.key.Namespace, Name: o.key.Name})
	if err == nil && len(one) == 0 { // of a kind without namespaces
		one, err = o.Find(ctx, registration.Ref{Kind: kind, Name: o.key.Name})
	}
	o.found = o.found || len(one) > 0
	return slices.DeleteFunc(one, func(u *unstructured.Unstructured) bool { return !selector.Matches(labels.Set(u.GetLabels())) }), false, err
}
