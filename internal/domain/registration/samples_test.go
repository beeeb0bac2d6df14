package registration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// sample is the registration in a file of samples.
func sampleOf(t *testing.T, name string) *Registration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "samples", "gardener", name))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	hcr := &v1alpha1.HealthCheckRegistration{}
	if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), hcr); err != nil {
		t.Fatal(err)
	}
	r, problems := Read(hcr)
	if len(problems) > 0 {
		t.Fatalf("problems: %q", problems)
	}
	return r
}

// resources are a cluster's ManagedResources.
type resources []*unstructured.Unstructured

// resultsOf makes all checks of a target, by condition type.
func resultsOf(t *testing.T, r *Registration, target *unstructured.Unstructured, all resources) map[string][]health.Result {
	t.Helper()
	by := map[string][]health.Result{}
	for _, c := range r.Checks {
		ref, err := c.Ref(target)
		if err != nil {
			t.Fatal(err)
		}
		var found []*unstructured.Unstructured
		for _, o := range all {
			if o.GetNamespace() == ref.Namespace && ref.Selector.Matches(labels.Set(o.GetLabels())) {
				found = append(found, o)
			}
		}
		by[c.ConditionType] = append(by[c.ConditionType], c.JudgeObjects(ref, target, found, time.Time{}))
	}
	return by
}

// TestTheSamplesRouteAsTheFunctionDoes gives each sample one ManagedResource that is sick, of each class and label: exactly the
// condition that health.Route names is False, and none where it names none.
func TestTheSamplesRouteAsTheFunctionDoes(t *testing.T) {
	set, empty := "seed", ""
	for file, owner := range map[string]struct {
		is     health.Owner
		target string
		in     []string
	}{
		"shoot.yaml":  {health.Shoot, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: ControlPlane, metadata: {name: c, namespace: shoot--a}}", []string{"shoot--a"}},
		"seed.yaml":   {health.Seed, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Extension, metadata: {name: e, namespace: garden}, spec: {class: seed}}", []string{"garden", "istio-system"}},
		"garden.yaml": {health.Garden, "{apiVersion: operator.gardener.cloud/v1alpha1, kind: Garden, metadata: {name: g}}", []string{"garden", "istio-system"}},
	} {
		r, target := sampleOf(t, file), object(t, owner.target)
		for _, namespace := range append(owner.in, "elsewhere") {
			for _, class := range []*string{nil, &set, &empty} {
				for _, label := range []string{"", "ObservabilityComponentsHealthy", "RuntimeComponentsHealthy", "VirtualComponentsHealthy", "ControlPlaneHealthy", "SystemComponentsHealthy", "Mine"} {
					want, routed := health.Route(owner.is, class, label)
					routed = routed && namespace != "elsewhere"
					if owner.is == health.Shoot && routed && !slices.ContainsFunc(r.Checks, func(c *Check) bool { return c.ConditionType == want }) {
						continue // which the sample tells to add
					}
					there := resources{managedResource(t, namespace, class, label, "False")}
					for _, well := range owner.in {
						there = append(there, managedResource(t, well, nil, "", "True"))
					}
					var failing []string
					for conditionType, results := range resultsOf(t, r, target, there) {
						if health.Aggregate(results, health.History{}, time.Time{}).Status != health.True {
							failing = append(failing, conditionType)
						}
					}
					wanted := []string{want}
					if !routed {
						wanted = nil
						if owner.is == health.Garden && namespace != "elsewhere" {
							wanted = []string{"ManagedResourcesRouted"}
						}
					}
					if !slices.Equal(failing, wanted) {
						t.Errorf("%s: a sick one in %s of class %v with label %q makes %q not True, instead of %q", file, namespace, class, label, failing, wanted)
					}
				}
			}
		}
	}
}

func managedResource(t *testing.T, namespace string, class *string, label, healthy string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, "{apiVersion: resources.gardener.cloud/v1alpha1, kind: ManagedResource, metadata: {name: m, namespace: "+namespace+", generation: 1}, spec: {}, status: {observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: '"+healthy+"', message: m}]}}")
	if class != nil {
		o.Object["spec"] = map[string]any{"class": *class}
	}
	if label != "" {
		o.SetLabels(map[string]string{health.ConditionTypeLabel: label})
	}
	return o
}
