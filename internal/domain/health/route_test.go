package health_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

func TestRoutingOfManagedResources(t *testing.T) {
	seed, empty := "seed", ""
	for _, tt := range []struct {
		class                *string
		label                string
		shoot, garden, seeds string // "" for none
	}{
		{nil, "", "SystemComponentsHealthy", "VirtualComponentsHealthy", ""},
		{nil, "ObservabilityComponentsHealthy", "SystemComponentsHealthy", "ObservabilityComponentsHealthy", ""},
		{nil, "VirtualComponentsHealthy", "SystemComponentsHealthy", "VirtualComponentsHealthy", ""},
		{nil, "RuntimeComponentsHealthy", "SystemComponentsHealthy", "VirtualComponentsHealthy", ""},
		{nil, "Mine", "SystemComponentsHealthy", "VirtualComponentsHealthy", ""},
		{&seed, "", "ControlPlaneHealthy", "RuntimeComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&empty, "", "ControlPlaneHealthy", "RuntimeComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&seed, "RuntimeComponentsHealthy", "RuntimeComponentsHealthy", "RuntimeComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&seed, "VirtualComponentsHealthy", "VirtualComponentsHealthy", "VirtualComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&empty, "ObservabilityComponentsHealthy", "ObservabilityComponentsHealthy", "ObservabilityComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&empty, "VirtualComponentsHealthy", "VirtualComponentsHealthy", "VirtualComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&seed, "ObservabilityComponentsHealthy", "ObservabilityComponentsHealthy", "ObservabilityComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&empty, "RuntimeComponentsHealthy", "RuntimeComponentsHealthy", "RuntimeComponentsHealthy", "SeedSystemComponentsHealthy"},
		{&seed, "ControlPlaneHealthy", "ControlPlaneHealthy", "", "SeedSystemComponentsHealthy"},
		{&seed, "SystemComponentsHealthy", "SystemComponentsHealthy", "", "SeedSystemComponentsHealthy"},
		{&seed, "SeedSystemComponentsHealthy", "SeedSystemComponentsHealthy", "", "SeedSystemComponentsHealthy"},
		{&seed, "Mine", "Mine", "", "SeedSystemComponentsHealthy"},
		{&empty, "Mine", "Mine", "", "SeedSystemComponentsHealthy"},
	} {
		for owner, want := range map[health.Owner]string{"Shoot": tt.shoot, "Garden": tt.garden, "Seed": tt.seeds, "Other": ""} {
			got, ok := health.Route(owner, tt.class, tt.label)
			if ok != (want != "") || ok && got != want {
				t.Errorf("%s, class %v, label %q: %q %v, want %q", owner, tt.class, tt.label, got, ok, want)
			}
		}
	}
}

func TestWhichNamespacesCount(t *testing.T) {
	for _, tt := range []struct {
		owner     health.Owner
		namespace string
		want      bool
	}{
		{"Shoot", "shoot--a", true}, {"Shoot", "garden", true},
		{"Seed", "garden", true}, {"Seed", "istio-system", true}, {"Seed", "shoot--a", false},
		{"Garden", "garden", true}, {"Garden", "istio-system", true}, {"Garden", "default", false},
	} {
		if got := health.Counts(tt.owner, tt.namespace); got != tt.want {
			t.Errorf("%s in %s: %v", tt.owner, tt.namespace, got)
		}
	}
}
