package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	extvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// proberSpec has each field of the prober's configuration that ProbeConfig grew out of, as that is written.
const proberSpec = `
internalKubeConfigSecretName: "dependency-watchdog-internal-probe-kubeconfig"
externalKubeConfigSecretName: "dependency-watchdog-external-probe-kubeconfig"
probeInterval: 10s
initialDelay: 30s
successThreshold: 1
failureThreshold: 3
internalProbeFailureBackoffDuration: 30s
backoffJitterFactor: 0.2
dependentResourceInfos:
- ref:
    kind: "Deployment"
    name: "kube-controller-manager"
    apiVersion: "apps/v1"
  optional: false
  scaleUp:
    level: 0
    initialDelay: 0s
    timeout: 30s
  scaleDown:
    level: 1
    initialDelay: 0s
    timeout: 30s
- ref: {kind: Deployment, name: cluster-autoscaler, apiVersion: apps/v1}
  optional: true
  scaleUp: {level: 1}
  scaleDown: {level: 0}
`

// oneDependent is the shortest spec there is, to add to.
const (
	twoSecrets   = "internalKubeConfigSecretName: internal\nexternalKubeConfigSecretName: external\n"
	oneDependent = twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0}, scaleDown: {level: 0}}]\n"
)

func TestTheAPIServerTakesTheProbeConfigSchema(t *testing.T) {
	if errs := extvalidation.ValidateCustomResourceDefinition(t.Context(), schemaOf(t, "probeconfigs")); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

func TestProbeConfigSchema(t *testing.T) {
	judge := judgeOf(t, "ProbeConfig", "probeconfigs")
	for name, test := range map[string]struct {
		spec string
		// wrong is a part of the error, "" when the spec is admitted.
		wrong string
	}{
		"the seed's":                     {spec: proberSpec},
		"the shortest":                   {spec: oneDependent},
		"all other fields":               {spec: oneDependent + "probeTimeout: 1m\nnamespaceSelector: {}\nnodeLeases: {failureFraction: 1, monitorGraceDuration: 40s, minCandidates: 3, maxProtectionDuration: 24h}\nmode: Observe\n"},
		"nodeLeases by default":          {spec: oneDependent + "nodeLeases: {}\n"},
		"an account":                     {spec: oneDependent + "serviceAccountName: prober\n"},
		"no internal Secret":             {"externalKubeConfigSecretName: external", "internalKubeConfigSecretName: Required value"},
		"no external Secret":             {"internalKubeConfigSecretName: internal", "externalKubeConfigSecretName: Required value"},
		"one Secret for both":            {oneDependent + "externalKubeConfigSecretName: internal", "must be two Secrets"},
		"an interval below 1s":           {oneDependent + "probeInterval: 999ms", "at least 1s and at most 1h"},
		"an interval above 1h":           {oneDependent + "probeInterval: 61m", "at least 1s and at most 1h"},
		"an interval in nanoseconds":     {oneDependent + "probeInterval: 10000000000", "must be of type string"},
		"a long initialDelay":            {oneDependent + "initialDelay: 2h", "at most 1h"},
		"no probeTimeout":                {oneDependent + "probeTimeout: 0s", "more than 0s"},
		"no successThreshold":            {oneDependent + "successThreshold: 0", "greater than or equal to 1"},
		"no failureThreshold":            {oneDependent + "failureThreshold: 0", "greater than or equal to 1"},
		"a negative back-off":            {oneDependent + "internalProbeFailureBackoffDuration: -1s", "write a duration such as"},
		"jitter above 1":                 {oneDependent + "backoffJitterFactor: 1.1", "less than or equal to 1"},
		"negative jitter":                {oneDependent + "backoffJitterFactor: -0.1", "greater than or equal to 0"},
		"no dependents":                  {twoSecrets + "dependentResourceInfos: []", "should have at least 1 items"},
		"dependents missing":             {twoSecrets, "dependentResourceInfos: Required value"},
		"no ref":                         {twoSecrets + "dependentResourceInfos: [{scaleUp: {level: 0}, scaleDown: {level: 0}}]", "ref: Required value"},
		"no scaleUp":                     {twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleDown: {level: 0}}]", "scaleUp: Required value"},
		"no scaleDown":                   {twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0}}]", "scaleDown: Required value"},
		"no level":                       {twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {}, scaleDown: {level: 0}}]", "level: Required value"},
		"a negative level":               {twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: -1}, scaleDown: {level: 0}}]", "greater than or equal to 0"},
		"no timeout":                     {twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0, timeout: 0s}, scaleDown: {level: 0}}]", "more than 0s and at most 10m"},
		"one object twice":               {twoSecrets + "dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0}, scaleDown: {level: 0}}, {ref: {name: kcm, kind: Deployment, apiVersion: apps/v1}, scaleUp: {level: 1}, scaleDown: {level: 0}}]", "names one object twice"},
		"a fraction above 1":             {oneDependent + "nodeLeases: {failureFraction: 60}", "less than or equal to 1"},
		"no candidates":                  {oneDependent + "nodeLeases: {minCandidates: 0}", "greater than or equal to 1"},
		"protection without an end":      {oneDependent + "nodeLeases: {maxProtectionDuration: 25h}", "more than 0s and at most 24h"},
		"another mode":                   {oneDependent + "mode: DryRun", "Unsupported value"},
		"an account and many namespaces": {oneDependent + "serviceAccountName: prober\nnamespaceSelector: {matchLabels: {shoot: a}}", "remove one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			judge(t, test.spec, test.wrong)
		})
	}
}

// What a GitOps tool reads back is what it wrote, by way of the API server's own form of an object, too.
func TestTheProbersConfigurationIsKeptAsItIsWritten(t *testing.T) {
	want, err := yaml.YAMLToJSON([]byte(proberSpec))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(want), strings.Replace(string(want), "0.2", "1", 1)} {
		var content map[string]any
		if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
			t.Fatal(err)
		}
		var spec v1alpha1.ProbeConfigSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if wanted, err := json.Marshal(content); err != nil || canonical(t, got) != canonical(t, wanted) {
			t.Errorf("written %s (%v)\nread %s", wanted, err, got)
		}
	}
}
