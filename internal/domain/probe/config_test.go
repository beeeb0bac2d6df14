package probe_test

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func probeConfig(t fataler, namespace, text string) *v1alpha1.ProbeConfig {
	t.Helper()
	pc := &v1alpha1.ProbeConfig{}
	if err := yaml.UnmarshalStrict([]byte(text), &pc.Spec); err != nil {
		t.Fatal(err)
	}
	pc.Name, pc.Namespace, pc.UID = "main", namespace, "uid-1"
	return pc
}

func TestDefaults(t *testing.T) {
	c := config(t, "nodeLeases: {}")
	if c.Interval != 10*time.Second || c.InitialDelay != 30*time.Second || c.Timeout != 5*time.Second || c.Backoff != 30*time.Second ||
		c.Thresholds != (probe.Thresholds{Success: 1, Failure: 3, RunPeriod: 22 * time.Second}) || c.Jitter != 0.2 || c.Account != "default" || c.Observe {
		t.Errorf("%+v", c)
	}
	if *c.Leases != (probe.LeaseSettings{FailureFraction: 0.6, Grace: 50 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}) {
		t.Errorf("%+v", c.Leases)
	}
	if got := config(t, "nodeLeases: {monitorGraceDuration: 40m}").Leases.MaxProtection; got != 80*time.Minute {
		t.Errorf("with a grace of 40m leases are believed for %s, want 80m", got)
	}
	if got := c.Dependents[0]; got.ScaleDown != (probe.ScaleParameters{Level: 1, Timeout: 30 * time.Second}) || got.Optional {
		t.Errorf("%+v", got)
	}
	if got := config(t, "probeInterval: 4s").Timeout; got != 2*time.Second {
		t.Errorf("of an interval of 4s the time-out is %s, want 2s", got)
	}
}

func TestWhatCantBeRead(t *testing.T) {
	const one = "{apiVersion: apps/v1, kind: Deployment, name: kcm}"
	for text, want := range map[string]string{
		twoDependents + "probeInterval: soon":                                                `spec.probeInterval: "soon"`,
		twoDependents + "initialDelay: -1s":                                                  "spec.initialDelay",
		twoDependents + "probeTimeout: 0s":                                                   "spec.probeTimeout",
		twoDependents + "internalProbeFailureBackoffDuration: x":                             "spec.internalProbeFailureBackoffDuration",
		twoDependents + "failureThreshold: 0":                                                "at least 1",
		twoDependents + "backoffJitterFactor: 1.5":                                           "spec.backoffJitterFactor",
		twoDependents + "nodeLeases: {failureFraction: 0}":                                   "spec.nodeLeases.failureFraction",
		twoDependents + "nodeLeases: {monitorGraceDuration: x}":                              "spec.nodeLeases.monitorGraceDuration",
		twoDependents + "nodeLeases: {maxProtectionDuration: 99s}":                           `spec.nodeLeases.maxProtectionDuration: "99s" is no duration of at least 1m40s`,
		twoDependents + "namespaceSelector: {matchLabels: {a: b}}":                           "spec.namespaceSelector: only in Autohealer's own namespace",
		"dependentResourceInfos: []":                                                         "spec.dependentResourceInfos: at least one",
		"dependentResourceInfos: [{ref: " + one + ", scaleDown: {level: 0}}]":                "spec.dependentResourceInfos[0]: scaleUp and scaleDown",
		"dependentResourceInfos: [{ref: {apiVersion: a/b/c, kind: K, name: n}}]":             "spec.dependentResourceInfos[0].ref",
		"dependentResourceInfos: [{ref: {kind: K, name: n}}]":                                "spec.dependentResourceInfos[0].ref",
		"dependentResourceInfos: [{ref: " + one + ", scaleUp: {timeout: x}, scaleDown: {}}]": "spec.dependentResourceInfos[0].scaleUp.timeout",
	} {
		_, err := probe.NewConfig(probeConfig(t, "shoot", text), "autohealer-system")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestTerms(t *testing.T) {
	pc := probeConfig(t, "shoot", `
serviceAccountName: prober
dependentResourceInfos:
- {ref: {apiVersion: apps/v1, kind: Deployment, name: a}, scaleUp: {level: 0}, scaleDown: {level: 0}}
- {ref: {apiVersion: v1, kind: ReplicationController, name: b}, scaleUp: {level: 0}, scaleDown: {level: 0}}
`)
	got := probe.TermsOf(pc, "autohealer-system")
	if !got.Tenant || got.Account != "prober" || strings.Join(got.Scales, " ") != "apps/deployments/a /replicationcontrollers/b" || got.Unreadable != "" {
		t.Errorf("%+v", got)
	}
	if probe.TermsOf(pc, "shoot").Tenant || !probe.TermsOf(pc, "").Tenant {
		t.Error("a tenant's namespace is every one but a known own one")
	}
}
