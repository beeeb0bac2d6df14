package probe_test

import (
	"time"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// fataler is a test or a property.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const twoDependents = `
internalKubeConfigSecretName: internal
externalKubeConfigSecretName: external
dependentResourceInfos:
- {ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0}, scaleDown: {level: 1}}
- {ref: {apiVersion: apps/v1, kind: Deployment, name: mcm}, scaleUp: {level: 1, initialDelay: 5s, timeout: 1m}, scaleDown: {level: 0}}
`

// config reads a spec, with what more says.
func config(t fataler, more string) *probe.Config {
	t.Helper()
	pc := &v1alpha1.ProbeConfig{}
	if err := yaml.UnmarshalStrict([]byte(twoDependents+more), &pc.Spec); err != nil {
		t.Fatal(err)
	}
	pc.Name, pc.Namespace, pc.UID, pc.Generation = "main", "shoot", "uid-1", 7
	c, err := probe.NewConfig(pc, "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func outcome(class probe.Class) probe.Outcome { return probe.Outcome{Class: class} }

// run is a run of both probes that takes a second, of a user who may not list leases.
func run(at time.Time, internal, external probe.Class) probe.Run {
	r := probe.Run{Started: at, Ended: at.Add(time.Second), Internal: outcome(internal), ServerTime: at.Add(time.Second), ListError: outcome(probe.Forbidden)}
	if probe.Succeeded(r.Internal) {
		o := outcome(external)
		r.External = &o
	}
	return r
}
