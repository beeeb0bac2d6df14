package snapshot

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// recordChecked reads what the stored HealthCheckRegistrations are about, for the file.
func (f *Facts) recordChecked(ctx context.Context, warn func(text string)) error {
	if f.snapshot.dependents == nil {
		return nil
	}
	r := &checkRecorder{Objects: f.snapshot.dependents, fields: storedFields(f.snapshot), into: &Checked{}}
	for i := range f.registrations {
		hcr := &f.registrations[i]
		if _, err := f.checksOf(r).Forecast(ctx, hcr, limit.Builtin(), f.snapshot.ServerTime.Time); err != nil {
			warn("not all is known of what HealthCheckRegistration " + hcr.Name + " would do: " + err.Error())
		}
	}
	r.sort()
	f.snapshot.Checked = r.into
	return ctx.Err()
}

// checkRecorder writes down what is read. Of targets it keeps as many as are looked at.
type checkRecorder struct {
	dependents.Objects
	fields registration.Fields

	mu   sync.Mutex
	into *Checked // needs mu
}

func (r *checkRecorder) Served(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	served, err := r.Objects.Served(ctx, kind)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.kind(kind).Missing = !served
	}
	return served, err
}

// kind needs r.mu.
func (r *checkRecorder) kind(kind schema.GroupVersionKind) *CheckedKind {
	if r.into.kind(kind) == nil {
		apiVersion, name := kind.ToAPIVersionAndKind()
		r.into.Kinds = append(r.into.Kinds, CheckedKind{APIVersion: apiVersion, Kind: name})
	}
	return r.into.kind(kind)
}

func (r *checkRecorder) Layout(ctx context.Context, kind schema.GroupVersionKind) (health.Layout, error) {
	layout, err := r.Objects.Layout(ctx, kind)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		r.kind(kind).Layout = &CheckedLayout{Problem: "it has no CustomResourceDefinition"}
	case err == nil:
		r.kind(kind).Layout = &CheckedLayout{Shape: string(layout.Shape), Map: layout.Map, Lacks: layout.Lacks, NoProgressing: layout.NoProgressing, Problem: layout.Problem}
	}
	return layout, err
}

// Targets reads all of the kind, so that the file serves another registration for it, too.
func (r *checkRecorder) Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, most int) ([]*unstructured.Unstructured, bool, error) {
	objects, more, err := r.Objects.Targets(ctx, kind, labels.Everything(), most)
	if err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kind(kind)
	if k.Targets = nil; k.Layout == nil {
		k.Layout = &CheckedLayout{} // unreadable; the targets aren't
	}
	k.More = more || len(objects) > targetsLooked
	for _, o := range objects[:min(len(objects), targetsLooked)] {
		k.Targets = append(k.Targets, r.fields.Trim(o).Object)
	}
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !selector.Matches(labels.Set(o.GetLabels())) }), more, nil
}

func (r *checkRecorder) Find(ctx context.Context, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if ref.Kind.Group == "" && ref.Kind.Kind == "Secret" {
		return nil, notInFacts("a Secret is")
	}
	objects, err := r.Objects.Find(ctx, ref)
	look := lookAt(ref)
	if err != nil {
		look.Error = err.Error()
	}
	for _, o := range objects {
		look.Objects = append(look.Objects, r.fields.Trim(o).Object)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.into.Looks, look.same) {
		r.into.Looks = append(r.into.Looks, look)
	}
	return objects, err
}

func (r *checkRecorder) Namespace(ctx context.Context, name string) (labels.Set, error) {
	of, err := r.Objects.Namespace(ctx, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.into.Namespace(ctx, name); err == nil && known != nil {
		r.into.Namespaces = append(r.into.Namespaces, CheckedNamespace{Name: name, Labels: of})
	}
	return of, err
}

func (r *checkRecorder) Kubeconfig(ctx context.Context, namespace string, at v1alpha1.SecretKey) (string, error) {
	unsafe, err := r.Objects.Kubeconfig(ctx, namespace, at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.into.Kubeconfig(ctx, namespace, at); err == nil && known != nil {
		r.into.Kubeconfigs = append(r.into.Kubeconfigs, CheckedSecret{Namespace: namespace, Secret: at.SecretName, Key: at.Key, Unsafe: unsafe})
	}
	return unsafe, err
}

// sort makes the same cluster give the same file.
func (r *checkRecorder) sort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.into.Looks, func(a, b Look) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Selector, b.Selector), strings.Compare(a.APIVersion, b.APIVersion))
	})
	slices.SortFunc(r.into.Kubeconfigs, func(a, b CheckedSecret) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Secret, b.Secret))
	})
	slices.SortFunc(r.into.Namespaces, func(a, b CheckedNamespace) int { return strings.Compare(a.Name, b.Name) })
}
