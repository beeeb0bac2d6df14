package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// prober has the fields of the prober's configuration that ProbeConfig grew out of.
const prober = `
internalKubeConfigSecretName: internal
externalKubeConfigSecretName: external
probeInterval: 10s
initialDelay: 30s
successThreshold: 1
failureThreshold: 3
internalProbeFailureBackoffDuration: 30s
backoffJitterFactor: 0.2
dependentResourceInfos:
- ref: {kind: Deployment, name: kube-controller-manager, apiVersion: apps/v1}
  optional: false
  scaleUp: {level: 0, initialDelay: 0s, timeout: 30s}
  scaleDown: {level: 1}
`

// oldProber has those of other versions.
const oldProber = `
name: main
namespace: shoot
kubeConfigSecretName: internal
externalKubeConfigSecretName: external
apiServerProbeFailureBackoffDuration: 40s
kcmNodeMonitorGraceDuration: 40s
nodeLeaseFailureFraction: 0.6
probeTimeout: 30s
dependentResourceInfos:
- ref: {kind: Deployment, name: cluster-autoscaler, apiVersion: apps/v1}
  shouldExist: false
  scaleUp: {level: 0, replicas: 1}
  scaleDown: {level: 1, replicas: 0}
`

func spec(t *testing.T, r Result) (got map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(r.Objects[0].Content["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTheProbersConfigurationIsASpecAsItIs(t *testing.T) {
	for name, text := range map[string]string{"bare": prober, "in a ConfigMap": inConfigMap(prober)} {
		t.Run(name, func(t *testing.T) {
			r := Convert([]manifest.File{{Name: "f", Text: []byte(text)}}, "ProbeConfig")
			if r.Failed() || len(r.Objects) != 1 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Message, "namespaceSelector") {
				t.Fatalf("%d objects, notes %+v", len(r.Objects), r.Notes)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(prober), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, spec(t, r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatOtherVersionsOfTheProberSay(t *testing.T) {
	r := Convert([]manifest.File{{Name: "f", Text: []byte(oldProber)}}, "ProbeConfig")
	if r.Failed() || len(r.Objects) != 1 {
		t.Fatalf("notes %+v", r.Notes)
	}
	var notes []string
	for _, n := range r.Notes {
		path, _, _ := strings.Cut(n.Message, ":")
		notes = append(notes, path)
	}
	if diff := cmp.Diff([]string{"probeTimeout", "dependentResourceInfos[0].scaleUp.replicas", "dependentResourceInfos[0].scaleDown.replicas"}, notes); diff != "" {
		t.Error(diff)
	}
	want := map[string]any{
		"internalKubeConfigSecretName": "internal", "externalKubeConfigSecretName": "external", "internalProbeFailureBackoffDuration": "40s",
		"nodeLeases": map[string]any{"monitorGraceDuration": "40s", "failureFraction": 0.6},
		"dependentResourceInfos": []any{map[string]any{
			"ref": map[string]any{"kind": "Deployment", "name": "cluster-autoscaler", "apiVersion": "apps/v1"}, "optional": true,
			"scaleUp": map[string]any{"level": 0.0}, "scaleDown": map[string]any{"level": 1.0},
		}},
	}
	if diff := cmp.Diff(want, spec(t, r)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"name": "main", "namespace": "shoot"}, r.Objects[0].Content["metadata"]); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNoProbersConfiguration(t *testing.T) {
	const secrets = "internalKubeConfigSecretName: a\nexternalKubeConfigSecretName: b\n"
	for name, c := range map[string]struct{ text, note string }{
		"no external kubeconfig":  {"internalKubeConfigSecretName: a\ndependentResourceInfos: [{ref: {}, scaleUp: {level: 0}, scaleDown: {level: 0}}]\n", "externalKubeConfigSecretName is missing"},
		"one Secret by two names": {secrets + "kubeConfigSecretName: c\ndependentResourceInfos: [{ref: {}, scaleUp: {level: 0}, scaleDown: {level: 0}}]\n", "internalKubeConfigSecretName says it already"},
		"a name that none is":     {secrets + "name: A b\ndependentResourceInfos: [{ref: {}, scaleUp: {level: 0}, scaleDown: {level: 0}}]\n", "a lowercase RFC 1123 subdomain must"},
		"no text for a namespace": {secrets + "namespace: 1\ndependentResourceInfos: [{ref: {}, scaleUp: {level: 0}, scaleDown: {level: 0}}]\n", "must be a string"},
		"no dependents":           {secrets + "dependentResourceInfos: []\n", "must be a list with at least one object"},
		"dependents no map":       {secrets + "dependentResourceInfos: [a]\n", "must be a map with ref, scaleUp and scaleDown"},
		"a field in two cases":    {secrets + "probeInterval: 1s\nprobeinterval: 2s\ndependentResourceInfos: [{ref: {}, scaleUp: {}, scaleDown: {}}]\n", "probeInterval and probeinterval are one field"},
		"a field twice":           {secrets + "probeInterval: 1s\nprobeInterval: 2s\ndependentResourceInfos: []\n", "is on line 3 already"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Convert([]manifest.File{{Name: "f", Text: []byte(c.text)}}, "ProbeConfig")
			if !r.Failed() || len(r.Objects) > 0 || !strings.Contains(r.Notes[len(r.Notes)-1].Message, c.note) {
				t.Errorf("%d objects, notes %+v, want %q", len(r.Objects), r.Notes, c.note)
			}
		})
	}
}
