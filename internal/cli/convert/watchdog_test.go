package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// kcm, mcm and ca are dependents as they are in Gardener's configuration, and in nearly all of dependency-watchdog's.
const (
	kcm = "- {ref: {kind: Deployment, name: kube-controller-manager, apiVersion: apps/v1}, optional: false, scaleUp: {level: 0}, scaleDown: {level: 1}}\n"
	mcm = "- {ref: {kind: Deployment, name: machine-controller-manager, apiVersion: apps/v1}, optional: false, scaleUp: {level: 1, initialDelay: 30s}, scaleDown: {level: 0}}\n"
	ca  = "- {ref: {kind: Deployment, name: cluster-autoscaler, apiVersion: apps/v1}, optional: true, scaleUp: {level: 2}, scaleDown: {level: 0}}\n"

	controlplane = "{key: gardener.cloud/role, operator: In, values: [controlplane]}"
	oneKey       = "kubeConfigSecretName: dwd-api-server-probe-secret\n"
	depends      = "dependentResourceInfos:\n"
)

// gardener is the ConfigMap that Gardener makes for the prober.
const gardener = `apiVersion: v1
data:
  dep-config.yaml: |
    dependentResourceInfos:
    - optional: false
      ref:
        apiVersion: apps/v1
        kind: Deployment
        name: kube-controller-manager
      scaleDown:
        level: 1
      scaleUp:
        level: 0
    - optional: true
      ref:
        apiVersion: apps/v1
        kind: Deployment
        name: cluster-autoscaler
      scaleDown:
        level: 0
      scaleUp:
        initialDelay: 30s
        level: 2
    kubeConfigSecretName: shoot-access-dependency-watchdog-probe
    probeInterval: 30s
immutable: true
kind: ConfigMap
metadata:
  labels: {app: dependency-watchdog-prober, resources.gardener.cloud/garbage-collectable-reference: "true"}
  name: dependency-watchdog-prober-config-3c10a163
  namespace: garden
`

// TestAllOfTheirConfigurations: what dependency-watchdog 1.7's own loader takes becomes what our webhook admits, and what that refuses is
// refused with a word. The values are those of the files in its repository, by whose names they go here, and of what Gardener generates.
func TestAllOfTheirConfigurations(t *testing.T) {
	checker, err := check.New(check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ kind, text, refusal string }{
		"gardener, for the prober": {"ProbeConfig", gardener, ""},
		"gardener, when the prober had two Secrets": {"ProbeConfig", "internalKubeConfigSecretName: shoot-access-dependency-watchdog-internal-probe\n" +
			"externalKubeConfigSecretName: shoot-access-dependency-watchdog-external-probe\nprobeInterval: 30s\n" + depends + kcm + mcm + ca, ""},
		"example/01-dwd-prober-configmap.yaml": {"ProbeConfig", inConfigMap("\n" + oneKey + "kcmNodeMonitorGraceDuration: 40s\nnodeLeaseFailureFraction: 0.6\n" + depends + kcm + mcm + ca), ""},
		"internal/prober/testdata/valid_config.yaml": {"ProbeConfig", oneKey + "probeInterval: 30s\ninitialDelay: 5s\nbackOffJitterFactor: 0.2\n" +
			"kcmNodeMonitorGraceDuration: 2m\n" + depends + kcm + mcm + ca, ""},
		"internal/prober/testdata/config_missing_voluntary_values.yaml": {"ProbeConfig", oneKey + depends + kcm +
			"- {ref: {kind: Deployment, name: machine-controller-manager, apiVersion: apps/v1}, scaleUp: {level: 1}, scaleDown: {level: 0}}\n", ""},
		"controllers/cluster/testdata/prober-config.yaml": {"ProbeConfig", oneKey + "probeInterval: 20s\ninitialDelay: 5s\nbackOffJitterFactor: 0.2\n" + depends +
			"- {ref: {kind: Deployment, name: kube-controller-manager, apiVersion: apps/v1}, optional: false, scaleUp: {level: 0, initialDelay: 10s, timeout: 60s, replicas: 1}," +
			" scaleDown: {level: 1, initialDelay: 15s, timeout: 45s, replicas: 0}}\n", ""},
		"internal/docs/e2e-tests.md": {"ProbeConfig", oneKey + "kcmNodeMonitorGraceDuration: 120s\n" + depends + kcm + mcm + ca, ""},
		"no level, which is 0":       {"ProbeConfig", oneKey + depends + "- {ref: {kind: Deployment, name: a, apiVersion: apps/v1}, scaleUp: {}, scaleDown: {}}\n", ""},
		"internal/prober/testdata/config_missing_dependent_resource_infos.yaml": {"ProbeConfig", "kubeConfigSecretName:\nprobeInterval: 20s\ninitialDelay: 5s\n" +
			"backOffJitterFactor: 0.2\nkcmNodeMonitorGraceDuration:\n", "dependentResourceInfos: must be a list with at least one object"},
		"config_missing_mandatory_values.yaml, the Secret":   {"ProbeConfig", "kubeConfigSecretName: ''\n" + depends + kcm, "internalKubeConfigSecretName is missing"},
		"a Secret without a name, which is blank":            {"ProbeConfig", "kubeConfigSecretName: '  '\n" + depends + kcm, "internalKubeConfigSecretName is missing"},
		"config_missing_mandatory_values.yaml, the group":    {"ProbeConfig", oneKey + depends + strings.Replace(kcm, "apps/v1", "apps/v/1", 1), "probeconfig/unreadable-spec"},
		"config_missing_mandatory_values.yaml, both scales":  {"ProbeConfig", oneKey + depends + "- {ref: {kind: Deployment, name: a, apiVersion: apps/v1}}\n", "scaleUp: must be a map with level"},
		"config_missing_mandatory_values.yaml, scaling down": {"ProbeConfig", oneKey + depends + "- {ref: {kind: Deployment, name: a, apiVersion: apps/v1}, scaleUp: {level: 0, initialDelay: 10s}}\n", "scaleDown: must be a map with level"},
		"no ref, upon which their loader panics":             {"ProbeConfig", oneKey + depends + "- {scaleUp: {level: 0}, scaleDown: {level: 0}}\n", "ref: must be a map with apiVersion"},
		"internal/prober/testdata/invalidsyntax.yaml":        {"ProbeConfig", oneKey + depends + strings.Replace(kcm, "scaleUp: {level: 0}", "scaleUp: level:0", 1), "scaleUp: must be a map with level"},
		"a grace of zero": {"ProbeConfig", oneKey + "kcmNodeMonitorGraceDuration: 0s\n" + depends + kcm, "probeconfig/short-lease-grace"},
		"example/02-dwd-weeder-configmap.yaml, as Gardener's":   {"WeederConfig", inConfigMap(watchdog), ""},
		"internal/weeder/testdata/valid_config.yaml":            {"WeederConfig", strings.Replace(watchdog, "2m0s", "2m11s", 1), ""},
		"internal/weeder/testdata/config_missing_optional...":   {"WeederConfig", strings.Replace(watchdog, "watchDuration: 2m0s\n", "", 1), ""},
		"controllers/endpoint/testdata/weeder-config.yaml":      {"WeederConfig", "watchDuration: 15s\nservicesAndDependantSelectors: {etcd-main: {podSelectors: [{matchExpressions: [" + controlplane + ", {key: role, operator: In, values: [NotEtcd]}]}]}}\n", ""},
		"keys in another case, which their loader takes":        {"WeederConfig", strings.ToUpper("watchDuration") + ": 1m\nServicesAndDependantSelectors: {etcd: {podselectors: [{matchLabels: {a: b}}]}}\n", ""},
		"internal/weeder/testdata/config_missing_mandatory...":  {"WeederConfig", "servicesAndDependantSelectors: {etcd: {podSelectors: [{matchExpressions: [{key: gardener.cloud/role, operator: In}]}]}}\n", "operators In and NotIn need values"},
		"internal/weeder/testdata/config_missing_pod_selectors": {"WeederConfig", "watchDuration: 1m20s\nservicesAndDependantSelectors:\n  etcd-main-client:\n  kube-apiserver: {podSelectors: [{matchLabels: {a: b}}]}\n", "servicesAndDependantSelectors[etcd-main-client]: must be a map with podSelectors"},
		"what Gardener makes where there is nothing to watch":   {"WeederConfig", "servicesAndDependantSelectors: null\n", "must be a map with at least one Service"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Convert([]manifest.File{{Name: "f", Text: []byte(c.text)}}, c.kind)
			var said []string
			refused := len(r.Objects) == 0
			for _, n := range r.Notes {
				refused, said = refused || n.Error, append(said, n.Message)
			}
			for _, o := range r.Objects {
				verdict := checker.Object(t.Context(), o.Content, nil)
				refused = refused || !verdict.Allowed
				for _, v := range verdict.Violations {
					said = append(said, v.Rule+": "+v.Message)
				}
			}
			if refused != (c.refusal != "") || !strings.Contains(strings.Join(said, "\n"), c.refusal) {
				t.Errorf("refused: %v, want %q:\n%s", refused, c.refusal, strings.Join(said, "\n"))
			}
		})
	}
}

func TestWhatEachLineOfGardenersBecame(t *testing.T) {
	r := Convert([]manifest.File{{Name: "f", Text: []byte(gardener)}}, "ProbeConfig")
	if r.Failed() || len(r.Objects) != 1 {
		t.Fatalf("notes %+v", r.Notes)
	}
	var became, notes []string
	for _, n := range r.Outcomes {
		became = append(became, fmt.Sprintf("%d %s", n.Line, n.Message))
	}
	for _, n := range r.Notes {
		notes = append(notes, fmt.Sprintf("%d %.60s", n.Line, n.Message))
	}
	if diff := cmp.Diff([]string{
		"4 kcmNodeMonitorGraceDuration: isn't there, and its default becomes spec.nodeLeases.monitorGraceDuration: 40s",
		"4 nodeLeaseFailureFraction: isn't there, and its default becomes spec.nodeLeases.failureFraction: 0.6",
		"5 dependentResourceInfos[0].optional: becomes spec.dependentResourceInfos[0].optional: false",
		"7 dependentResourceInfos[0].ref.apiVersion: becomes spec.dependentResourceInfos[0].ref.apiVersion: apps/v1",
		"8 dependentResourceInfos[0].ref.kind: becomes spec.dependentResourceInfos[0].ref.kind: Deployment",
		"9 dependentResourceInfos[0].ref.name: becomes spec.dependentResourceInfos[0].ref.name: kube-controller-manager",
		"11 dependentResourceInfos[0].scaleDown.level: becomes spec.dependentResourceInfos[0].scaleDown.level: 1",
		"13 dependentResourceInfos[0].scaleUp.level: becomes spec.dependentResourceInfos[0].scaleUp.level: 0",
		"14 dependentResourceInfos[1].optional: becomes spec.dependentResourceInfos[1].optional: true",
		"16 dependentResourceInfos[1].ref.apiVersion: becomes spec.dependentResourceInfos[1].ref.apiVersion: apps/v1",
		"17 dependentResourceInfos[1].ref.kind: becomes spec.dependentResourceInfos[1].ref.kind: Deployment",
		"18 dependentResourceInfos[1].ref.name: becomes spec.dependentResourceInfos[1].ref.name: cluster-autoscaler",
		"20 dependentResourceInfos[1].scaleDown.level: becomes spec.dependentResourceInfos[1].scaleDown.level: 0",
		"22 dependentResourceInfos[1].scaleUp.initialDelay: becomes spec.dependentResourceInfos[1].scaleUp.initialDelay: 30s",
		"23 dependentResourceInfos[1].scaleUp.level: becomes spec.dependentResourceInfos[1].scaleUp.level: 2",
		"24 kubeConfigSecretName: becomes spec.internalKubeConfigSecretName: shoot-access-dependency-watchdog-probe",
		"25 probeInterval: becomes spec.probeInterval: 10s",
	}, became); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"25 probeInterval: 30s is more than a quarter of nodeLeases.moni",
		"24 kubeConfigSecretName: the prober had no kubeconfig for the w",
		"4 the prober probed every shoot with rights of its own; this c",
	}, notes); diff != "" {
		t.Error(diff)
	}
	var want map[string]any
	if err := yaml.Unmarshal([]byte(`
internalKubeConfigSecretName: shoot-access-dependency-watchdog-probe
externalKubeConfigSecretName: shoot-access-dependency-watchdog-probe-external
probeInterval: 10s
nodeLeases: {monitorGraceDuration: 40s, failureFraction: 0.6}
annotateMeltdownProtection: true
dependentResourceInfos:
- {ref: {apiVersion: apps/v1, kind: Deployment, name: kube-controller-manager}, optional: false, scaleUp: {level: 0}, scaleDown: {level: 1}}
- {ref: {apiVersion: apps/v1, kind: Deployment, name: cluster-autoscaler}, optional: true, scaleUp: {level: 2, initialDelay: 30s}, scaleDown: {level: 0}}
`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, spec(t, r)); diff != "" {
		t.Error(diff)
	}
}

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
