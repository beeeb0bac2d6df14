package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// targetsRead and targetsLooked bound what is told of one registration.
const (
	targetsRead   = 20000
	targetsLooked = 1000
)

// Checked is what the planner of HealthCheckRegistrations read of the cluster for those that are stored. Of objects it has
// their names, labels, and those fields that a stored registration reads.
type Checked struct {
	Kinds       []CheckedKind      `json:"kinds,omitempty"`
	Looks       []Look             `json:"looks,omitempty"`
	Namespaces  []CheckedNamespace `json:"namespaces,omitempty"`
	Kubeconfigs []CheckedSecret    `json:"kubeconfigs,omitempty"`
}

// CheckedKind is a kind of targets, or of what is checked.
type CheckedKind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Missing: the API server doesn't know it.
	Missing bool `json:"missing,omitempty"`
	// Layout is there for kinds of targets.
	Layout *CheckedLayout `json:"layout,omitempty"`
	// Targets are there for kinds of targets; More says that these aren't all.
	Targets []map[string]any `json:"targets,omitempty"`
	More    bool             `json:"more,omitempty"`
}

// CheckedLayout is how a kind keeps conditions.
type CheckedLayout struct {
	Shape string `json:"shape,omitempty"`
	Map   bool   `json:"map,omitempty"`
	// Lacks and NoProgressing are what the schema of conditions doesn't have.
	Lacks         health.Lacks `json:"lacks,omitzero"`
	NoProgressing bool         `json:"noProgressing,omitempty"`
	Problem       string       `json:"problem,omitempty"`
}

// Look is what was found where a check looks.
type Look struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Namespace  string           `json:"namespace,omitempty"`
	Name       string           `json:"name,omitempty"`
	Selector   string           `json:"selector,omitempty"`
	Objects    []map[string]any `json:"objects,omitempty"`
	Error      string           `json:"error,omitempty"`
}

// CheckedNamespace has the labels by which targets are selected.
type CheckedNamespace struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// CheckedSecret says why a shoot's kubeconfig is never used; "" when it is.
type CheckedSecret struct {
	Namespace string `json:"namespace"`
	Secret    string `json:"secret"`
	Key       string `json:"key"`
	Unsafe    string `json:"unsafe,omitempty"`
}

var _ dependents.Objects = (*Checked)(nil)

func notInFacts(what string, args ...any) error {
	return fmt.Errorf("%w: %s not in the facts", guard.ErrNotKnown, fmt.Sprintf(what, args...))
}

func (c *Checked) kind(kind schema.GroupVersionKind) *CheckedKind {
	apiVersion, name := kind.ToAPIVersionAndKind()
	i := slices.IndexFunc(c.Kinds, func(k CheckedKind) bool { return k.APIVersion == apiVersion && k.Kind == name })
	if i < 0 {
		return nil
	}
	return &c.Kinds[i]
}

// Targets are those of the file.
func (c *Checked) Targets(_ context.Context, kind schema.GroupVersionKind, selector labels.Selector, most int) ([]*unstructured.Unstructured, bool, error) {
	k := c.kind(kind)
	if k == nil || k.Layout == nil {
		return nil, false, notInFacts("objects of %s are", kind.Kind)
	}
	objects := slices.DeleteFunc(asObjects(k.Targets), func(o *unstructured.Unstructured) bool { return !selector.Matches(labels.Set(o.GetLabels())) })
	return objects[:min(most, len(objects))], k.More || len(objects) > most, nil
}

func asObjects(all []map[string]any) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(all))
	for i, o := range all {
		objects[i] = &unstructured.Unstructured{Object: o}
	}
	return objects
}

// Find is what the file says was found there.
func (c *Checked) Find(_ context.Context, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	at := lookAt(ref)
	i := slices.IndexFunc(c.Looks, at.same)
	if i < 0 {
		return nil, notInFacts("%s %s is", ref.Kind.Kind, ref.Key())
	}
	if failed := c.Looks[i].Error; failed != "" {
		return nil, errors.New(failed)
	}
	return asObjects(c.Looks[i].Objects), nil
}

func lookAt(ref registration.Ref) Look {
	l := Look{Namespace: ref.Namespace, Name: ref.Name}
	if l.APIVersion, l.Kind = ref.Kind.ToAPIVersionAndKind(); ref.Name == "" {
		l.Selector = ref.Selector.String()
	}
	return l
}

func (l Look) same(other Look) bool {
	return l.APIVersion == other.APIVersion && l.Kind == other.Kind && l.Namespace == other.Namespace && l.Name == other.Name && l.Selector == other.Selector
}

// Namespace is what the file says of its labels.
func (c *Checked) Namespace(_ context.Context, name string) (labels.Set, error) {
	for _, ns := range c.Namespaces {
		if ns.Name == name {
			return ns.Labels, nil
		}
	}
	return nil, notInFacts("namespace %s is", name)
}

// Layout is what the file says of it.
func (c *Checked) Layout(_ context.Context, kind schema.GroupVersionKind) (health.Layout, error) {
	if k := c.kind(kind); k != nil && k.Layout != nil {
		return health.Layout{Shape: health.Shape(k.Layout.Shape), Map: k.Layout.Map, Lacks: k.Layout.Lacks, NoProgressing: k.Layout.NoProgressing, Problem: k.Layout.Problem}, nil
	}
	return health.Layout{}, notInFacts("how %s keeps conditions is", kind.Kind)
}

// Served is what the file says of it.
func (c *Checked) Served(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
	if k := c.kind(kind); k != nil {
		return !k.Missing, nil
	}
	return false, notInFacts("kind %s of %s is", kind.Kind, kind.GroupVersion())
}

// Kubeconfig is what the file says of it.
func (c *Checked) Kubeconfig(_ context.Context, namespace string, at v1alpha1.SecretKey) (string, error) {
	for _, s := range c.Kubeconfigs {
		if s.Namespace == namespace && s.Secret == at.SecretName && s.Key == at.Key {
			return s.Unsafe, nil
		}
	}
	return "", notInFacts("Secret %s/%s is", namespace, at.SecretName)
}

// ForecastRegistration tells what a registration would have done at the snapshot's moment. What it names is read when it is
// asked where the snapshot was read live, and is that of the file otherwise.
func (f *Facts) ForecastRegistration(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, limits limit.Limits, _ time.Time) (registration.Forecast, error) {
	objects := f.snapshot.dependents
	if objects == nil {
		if err := f.inFacts(hcr); err != nil {
			return registration.Forecast{}, err
		}
		objects = f.snapshot.Checked
	}
	return f.checksOf(objects).Forecast(ctx, hcr, limits, f.snapshot.ServerTime.Time)
}

// inFacts says what a registration reads of objects that the file doesn't have of them.
func (f *Facts) inFacts(hcr *v1alpha1.HealthCheckRegistration) error {
	if f.fields == nil {
		f.fields = storedFields(f.snapshot)
	}
	wants := registration.Fields{}
	if reg, problems := registration.Read(hcr); len(problems) == 0 {
		wants.Add(reg)
	}
	if lacking := f.fields.Lacks(wants); len(lacking) > 0 {
		return notInFacts("%s, which no stored registration reads, is", strings.Join(lacking[:min(3, len(lacking))], ", "))
	}
	return nil
}

// storedFields are what stored registrations read.
func storedFields(s *Snapshot) registration.Fields {
	fields := registration.Fields{}
	for i := range s.HealthCheckRegistrations {
		if reg, problems := registration.Read(&s.HealthCheckRegistrations[i]); len(problems) == 0 {
			fields.Add(reg)
		}
	}
	return fields
}

func (f *Facts) checksOf(objects dependents.Objects) *dependents.Survey {
	return &dependents.Survey{
		Objects: objects, Read: targetsRead, Look: targetsLooked, Known: &f.known,
		Stored: func(context.Context) ([]*v1alpha1.HealthCheckRegistration, error) {
			all := make([]*v1alpha1.HealthCheckRegistration, len(f.registrations))
			for i := range f.registrations {
				all[i] = &f.registrations[i]
			}
			return all, nil
		},
	}
}

// KnowsChecked says whether anything is known of targets of HealthCheckRegistrations.
func (f *Facts) KnowsChecked() bool { return f.snapshot.dependents != nil || f.snapshot.Checked != nil }

// registration is that of a name, nil when there is none.
func (f *Facts) registration(name string) *v1alpha1.HealthCheckRegistration {
	for i := range f.registrations {
		if f.registrations[i].Name == name {
			return &f.registrations[i]
		}
	}
	return nil
}

// ApplyRegistration puts an admitted one in place of the stored one of its name. What is asked next is answered with it in force.
func (f *Facts) ApplyRegistration(hcr *v1alpha1.HealthCheckRegistration) {
	hcr = hcr.DeepCopy()
	hcr.UID, hcr.CreationTimestamp = types.UID("applied/"+hcr.Name), f.snapshot.TakenAt
	f.snapshot.rewrite("HealthCheckRegistration", hcr)
	if stored := f.registration(hcr.Name); stored != nil {
		hcr.UID, hcr.CreationTimestamp, hcr.Generation, hcr.Status = stored.UID, stored.CreationTimestamp, stored.Generation+1, *stored.Status.DeepCopy()
		*stored = *hcr
		return
	}
	f.registrations = append(f.registrations, *hcr)
}
