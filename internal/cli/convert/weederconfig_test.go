package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// watchdog is dependency-watchdog's own example.
const watchdog = `
watchDuration: 2m0s
servicesAndDependantSelectors:
  etcd-main-client:
    podSelectors:
    - matchExpressions:
      - {key: gardener.cloud/role, operator: In, values: [controlplane]}
      - {key: role, operator: In, values: [apiserver]}
  kube-apiserver:
    podSelectors:
    - matchExpressions:
      - {key: gardener.cloud/role, operator: In, values: [controlplane]}
      - {key: role, operator: NotIn, values: [main, apiserver]}
`

func inConfigMap(text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dwd-weeder}\ndata:\n  dep-config.yaml: |" + strings.ReplaceAll(text, "\n", "\n    ")
}

func TestTheWeedersConfigurationIsASpecAsItIs(t *testing.T) {
	for name, text := range map[string]string{"bare": watchdog, "in a ConfigMap": inConfigMap(watchdog)} {
		t.Run(name, func(t *testing.T) {
			r := Convert([]manifest.File{{Name: "f", Text: []byte(text)}}, "WeederConfig")
			if r.Failed() || len(r.Objects) != 1 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Message, "namespaceSelector") {
				t.Fatalf("%d objects, notes %+v", len(r.Objects), r.Notes)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(watchdog), &want); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(r.Objects[0].Content["spec"])
			if err != nil {
				t.Fatal(err)
			}
			var spec map[string]any
			if err := yaml.Unmarshal(got, &spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatIsNoWeedersConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		notes []string
	}{
		"no Services":   {"servicesAndDependantSelectors: {}\n", []string{"must be a map with at least one Service"}},
		"a bare list":   {"servicesAndDependantSelectors: {etcd: []}\n", []string{"must be a map with podSelectors"}},
		"a bare map":    {"servicesAndDependantSelectors: {etcd: {podSelectors: {matchLabels: {a: b}}}}\n", []string{"servicesAndDependantSelectors[etcd].podSelectors: must be a list of label selectors"}},
		"a name twice":  {"servicesAndDependantSelectors:\n  etcd: {podSelectors: []}\n  etcd: {podSelectors: []}\n", []string{`key "etcd" is on line 2 already; a map keeps only one of them`}},
		"another field": {"interval: 1m\nservicesAndDependantSelectors: {etcd: []}\n", []string{"interval", "must be a map with podSelectors"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := Convert([]manifest.File{{Name: "f", Text: []byte(c.text)}}, "WeederConfig")
			if !r.Failed() || len(r.Objects) > 0 || len(r.Notes) != len(c.notes) {
				t.Fatalf("%d objects, notes %+v", len(r.Objects), r.Notes)
			}
			for i, want := range c.notes {
				if !strings.Contains(r.Notes[i].Message, want) {
					t.Errorf("note %q, want %q", r.Notes[i].Message, want)
				}
			}
		})
	}
}
