package registration

import (
	"maps"
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

// sampleOf is the registration in a file of samples.
func sampleOf(t *testing.T, name string) *Registration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "samples", name))
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

// scenario is a registration of the samples: whose conditions it decides, on what, and from which namespaces.
type scenario struct {
	is     Owner
	target string
	in     []string
	// main is the condition that isn't True while there are no ManagedResources at all.
	main string
}

var samples = map[string]scenario{
	"shoot.yaml":  {Shoot, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: ControlPlane, metadata: {name: c, namespace: shoot--a}}", []string{"shoot--a"}, "SystemComponentsHealthy"},
	"seed.yaml":   {Seed, "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Extension, metadata: {name: e, namespace: garden}, spec: {class: seed}}", []string{"garden", "istio-system"}, "SeedSystemComponentsHealthy"},
	"garden.yaml": {Garden, "{apiVersion: operator.gardener.cloud/v1alpha1, kind: Garden, metadata: {name: g}}", []string{"garden", "istio-system"}, "RuntimeComponentsHealthy"},
}

// routed gives the condition that a ManagedResource feeds, or ManagedResourcesRouted where a label has it feed none that is decided.
func (s scenario) routed(r *Registration, namespace string, class *string, label string) []string {
	want, routed := Route(s.is, class, label)
	switch {
	case !slices.Contains(s.in, namespace):
		return nil
	case routed && slices.Contains(r.ConditionTypes(), want):
		return []string{want}
	case s.is != Seed:
		return []string{"ManagedResourcesRouted"}
	}
	return nil
}

// each calls with every way in which a ManagedResource may be routed.
func (s scenario) each(do func(namespace string, class *string, label string)) {
	set, empty := "seed", ""
	for _, namespace := range append(slices.Clone(s.in), "elsewhere") {
		for _, class := range []*string{nil, &set, &empty} {
			for _, label := range []string{"", "ObservabilityComponentsHealthy", "RuntimeComponentsHealthy", "VirtualComponentsHealthy", "ControlPlaneHealthy", "SystemComponentsHealthy", "Mine"} {
				do(namespace, class, label)
			}
		}
	}
}

// well are ManagedResources without a class and with one in each namespace, so that none is missing.
func (s scenario) well(t *testing.T) (all resources) {
	t.Helper()
	class := "seed"
	for _, namespace := range s.in {
		all = append(all, managedResource(t, namespace, nil, "", healthy), managedResource(t, namespace, &class, "", healthy))
	}
	return all
}

// conditionsOf are those that aren't True, by type.
func conditionsOf(t *testing.T, r *Registration, target *unstructured.Unstructured, all resources) map[string]health.Verdict {
	t.Helper()
	by := map[string]health.Verdict{}
	for conditionType, results := range resultsOf(t, r, target, all) {
		if v := health.Aggregate(results, health.History{}, rollout); v.Status != health.True {
			by[conditionType] = v
		}
	}
	return by
}

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
		by[c.ConditionType] = append(by[c.ConditionType], evaluate(t, c, target, found, rollout))
	}
	return by
}

// TestTheSamplesRouteAsTheFunctionDoes gives each sample one ManagedResource that is sick, of each class and label: exactly the
// condition that Route names is False; where it names none, or one that the sample has no check for, that is told.
func TestTheSamplesRouteAsTheFunctionDoes(t *testing.T) {
	for file, s := range samples {
		r, target := sampleOf(t, "gardener/"+file), object(t, s.target)
		s.each(func(namespace string, class *string, label string) {
			got := conditionsOf(t, r, target, append(s.well(t), managedResource(t, namespace, class, label, sick)))
			want := s.routed(r, namespace, class, label)
			if slices.Contains(want, "ManagedResourcesRouted") {
				if detail := got["ManagedResourcesRouted"].Message; !strings.Contains(detail, namespace+"/m feeds no condition: its label care.gardener.cloud/condition-type is "+label) {
					t.Errorf("%s: one in %s of %s with label %q is told as %q", file, namespace, told(class), label, detail)
				}
			}
			for conditionType, v := range got {
				if v.Status != health.False {
					t.Errorf("%s: a sick one makes %s %s", file, conditionType, v.Status)
				}
			}
			if failing := slices.Sorted(maps.Keys(got)); !slices.Equal(failing, want) {
				t.Errorf("%s: a sick one in %s of %s with label %q makes %q not True, instead of %q", file, namespace, told(class), label, failing, want)
			}
		})
	}
}

// TestTheSamplesJudgeAsTheCheckOfTheKindDoes has each ManagedResource roll out, as Gardener's resource manager writes it.
func TestTheSamplesJudgeAsTheCheckOfTheKindDoes(t *testing.T) {
	for name, state := range map[string]struct {
		status string
		want   health.Status
	}{
		"being applied":         {"{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: Progressing, reason: ApplyProgressing}, {type: ResourcesHealthy, status: 'True'}]}", "Progressing"},
		"health is to be told":  {"{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: Unknown, reason: HealthChecksPending}]}", "Progressing"},
		"health isn't known":    {"{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: Unknown, reason: Odd}]}", "Unknown"},
		"a new spec":            {"{observedGeneration: 0, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: 'False'}]}", "Progressing"},
		"no status yet":         {"{}", "Progressing"},
		"it rolls":              {"{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: 'True'}, {type: ResourcesProgressing, status: 'True', lastTransitionTime: '2026-03-01T02:51:00Z'}]}", "True"},
		"it rolls for too long": {"{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: 'True'}, {type: ResourcesProgressing, status: 'True', reason: ResourcesProgressing, message: it rolls, lastTransitionTime: '2026-03-01T02:50:00Z'}]}", "False"},
		"it is sick":            {sick, "False"},
	} {
		t.Run(name, func(t *testing.T) {
			for file, s := range samples {
				r, target := sampleOf(t, "gardener/"+file), object(t, s.target)
				s.each(func(namespace string, class *string, label string) {
					to := s.routed(r, namespace, class, label)
					if len(to) == 0 || to[0] == "ManagedResourcesRouted" {
						return
					}
					it := managedResource(t, namespace, class, label, state.status)
					alone := health.Builtin(it, 10*time.Minute, rollout)
					if alone.Status != state.want {
						t.Fatalf("by itself it is %s: %s", alone.Status, alone.Detail)
					}
					v, failing := conditionsOf(t, r, target, append(s.well(t), it))[to[0]]
					if !failing {
						v.Status = health.True
					}
					if v.Status != alone.Status || !strings.Contains(v.Message, alone.Detail) || v.Status == health.Progressing && !v.RequeueAt.Equal(rollout.Add(10*time.Minute)) {
						t.Errorf("%s: one in %s of %s with label %q makes %s %s until %s: %s, and by itself it is %s: %s", file, namespace, told(class), label, to[0], v.Status, v.RequeueAt, v.Message, alone.Status, alone.Detail)
					}
				})
			}
		})
	}
}

// TestTheSamplesWaitForTheFirst: in a namespace that is new there are none yet, and one condition says so.
func TestTheSamplesWaitForTheFirst(t *testing.T) {
	for file, s := range samples {
		got := conditionsOf(t, sampleOf(t, "gardener/"+file), object(t, s.target), nil)
		if v := got[s.main]; len(got) != 1 || v.Status != health.Progressing || !strings.Contains(v.Message, "no ManagedResource in namespace "+s.in[0]+" matches object.where") {
			t.Errorf("%s: without any, conditions are %+v", file, got)
		}
	}
}

func told(class *string) string {
	if class == nil {
		return "no class"
	}
	return "class '" + *class + "'"
}

// rollout is when it is looked at.
var rollout = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

const (
	healthy = "{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: 'True'}]}"
	sick    = "{observedGeneration: 1, conditions: [{type: ResourcesApplied, status: 'True'}, {type: ResourcesHealthy, status: 'False', message: m}]}"
)

func managedResource(t *testing.T, namespace string, class *string, label, status string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, "{apiVersion: resources.gardener.cloud/v1alpha1, kind: ManagedResource, metadata: {name: m, namespace: "+namespace+", generation: 1}, spec: {}, status: "+status+"}")
	if class != nil {
		o.Object["spec"] = map[string]any{"class": *class}
	}
	if label != "" {
		o.SetLabels(map[string]string{ConditionTypeLabel: label})
	}
	return o
}
