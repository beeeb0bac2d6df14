package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// conditions plans to remove the conditions that a target's record claims.
func (u *Undoer) conditions(ctx context.Context, o Object) (work, error) {
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(o.Kind)
	if err := u.Client.Get(ctx, o.Key, target); err != nil {
		return work{}, err
	}
	owned := registration.Owned(target)
	if len(owned) == 0 {
		return work{}, nil
	}
	w := work{
		write: func(ctx context.Context) error { return u.removeConditions(ctx, target, owned) },
		again: u.policies.decidesAgain(o.Kind),
	}
	for _, t := range owned {
		switch {
		case registration.Ours(target, t):
			w.steps = append(w.steps, "condition "+t+" removed")
		case health.Find(target, t) != nil:
			w.steps = append(w.steps, "record of condition "+t+" removed; the condition stays, since no health check wrote it")
		default:
			w.steps = append(w.steps, "record of condition "+t+" removed; the condition was gone already")
		}
	}
	return w, nil
}

func (u *Undoer) removeConditions(ctx context.Context, target *unstructured.Unstructured, owned []string) (err error) {
	writer := actuate.Conditions{Client: u.Client, Live: u.Client, Acts: logr.Discard()}
	for _, t := range owned {
		if condition := health.Find(target, t); !registration.Ours(target, t) {
			target, err = writer.Unclaim(ctx, target, t)
		} else {
			target, err = writer.Apply(ctx, actuate.ConditionWrite{Target: target, Step: health.Step{Condition: *condition, Before: condition.Status, Remove: true}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decidesAgain says which registrations would write conditions on objects of a kind again.
func (p *policies) decidesAgain(kind schema.GroupVersionKind) (who []string) {
	for i := range p.registrations {
		hcr := &p.registrations[i]
		if isAbout(hcr, kind) && hcr.DeletionTimestamp == nil && hcr.Spec.Mode != v1alpha1.Observe {
			who = append(who, fmt.Sprintf("HealthCheckRegistration %s, where it selects it", hcr.Name))
		}
	}
	return who
}

// mayBeChecked says whether objects of a kind may have conditions of ours: it is named by a registration, or it isn't known
// what registrations there are.
func (p *policies) mayBeChecked(kind schema.GroupVersionKind) bool {
	return p.registrationsUnknown != "" || !p.registrationsServed ||
		slices.ContainsFunc(p.registrations, func(hcr v1alpha1.HealthCheckRegistration) bool { return isAbout(&hcr, kind) })
}

// isAbout says whether objects of a kind, in whatever version, are a registration's targets.
func isAbout(hcr *v1alpha1.HealthCheckRegistration, kind schema.GroupVersionKind) bool {
	gv, err := schema.ParseGroupVersion(hcr.Spec.Target.APIVersion)
	return err == nil && gv.WithKind(hcr.Spec.Target.Kind).GroupKind() == kind.GroupKind()
}

// checkedKinds are all kinds that may have conditions of ours: those with a status, but for the core ones, in one version each.
func checkedKinds(from discovery.DiscoveryInterface) ([]schema.GroupVersionKind, error) {
	kinds, err := KindsOf(from, func(gv schema.GroupVersion, r metav1.APIResource, all []metav1.APIResource) bool {
		return !isKubernetes(gv.Group) && gv.Group != v1alpha1.GroupVersion.Group && hasSub(r, all, "status")
	})
	if err != nil {
		err = errors.Join(errors.New("not all kinds can be looked at"), err)
	}
	return kinds, err
}

// isKubernetes says whether a group is served without CRDs. Conditions of its objects are never written: only a CRD tells how.
func isKubernetes(group string) bool {
	return scheme.Scheme.IsGroupRegistered(group) || group == "apiextensions.k8s.io" || group == "apiregistration.k8s.io"
}
