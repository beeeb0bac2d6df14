package registration

import (
	"slices"
	"testing"
)

// Owner is an object of Gardener's whose conditions ManagedResources feed.
type Owner string

// Owners of conditions.
const (
	Shoot  Owner = "Shoot"
	Garden Owner = "Garden"
	Seed   Owner = "Seed"
)

const (
	// ConditionTypeLabel on a ManagedResource names the condition that it feeds.
	ConditionTypeLabel = "care.gardener.cloud/condition-type"

	systemComponents        = "SystemComponentsHealthy"
	controlPlane            = "ControlPlaneHealthy"
	observabilityComponents = "ObservabilityComponentsHealthy"
	virtualComponents       = "VirtualComponentsHealthy"
	runtimeComponents       = "RuntimeComponentsHealthy"
	seedSystemComponents    = "SeedSystemComponentsHealthy"
)

// Route gives the condition type of the owner that a ManagedResource feeds. class is its spec.class, nil when that isn't
// set; "" is set. label is the value of ConditionTypeLabel, "" for none. ok is false when it feeds none of that owner's. A
// label that names no condition type of the Garden's leaves the ManagedResource out, which hides it: tell it to people.
// For Garden and Seed only ManagedResources of the namespaces garden and istio-system count; see Counts.
func Route(owner Owner, class *string, label string) (conditionType string, ok bool) {
	switch owner {
	case Shoot:
		return routeShoot(class, label), true
	case Garden:
		return routeGarden(class, label)
	case Seed:
		if class != nil {
			return seedSystemComponents, true
		}
	}
	return "", false
}

func routeShoot(class *string, label string) string {
	switch {
	case class == nil:
		return systemComponents
	case label != "":
		return label
	}
	return controlPlane
}

func routeGarden(class *string, label string) (string, bool) {
	switch {
	case label == observabilityComponents:
		return observabilityComponents, true
	case class == nil:
		return virtualComponents, true
	case label == "":
		return runtimeComponents, true
	}
	return label, slices.Contains([]string{runtimeComponents, virtualComponents, observabilityComponents}, label)
}

// Counts says whether ManagedResources of the namespace feed the owner: a Shoot's are in its own namespace, which is named by
// the caller, so all count.
func Counts(owner Owner, namespace string) bool {
	return owner == Shoot || namespace == "garden" || namespace == "istio-system"
}
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
		for owner, want := range map[Owner]string{"Shoot": tt.shoot, "Garden": tt.garden, "Seed": tt.seeds, "Other": ""} {
			got, ok := Route(owner, tt.class, tt.label)
			if ok != (want != "") || ok && got != want {
				t.Errorf("%s, class %v, label %q: %q %v, want %q", owner, tt.class, tt.label, got, ok, want)
			}
		}
	}
}

func TestWhichNamespacesCount(t *testing.T) {
	for _, tt := range []struct {
		owner     Owner
		namespace string
		want      bool
	}{
		{"Shoot", "shoot--a", true}, {"Shoot", "garden", true},
		{"Seed", "garden", true}, {"Seed", "istio-system", true}, {"Seed", "shoot--a", false},
		{"Garden", "garden", true}, {"Garden", "istio-system", true}, {"Garden", "default", false},
	} {
		if got := Counts(tt.owner, tt.namespace); got != tt.want {
			t.Errorf("%s in %s: %v", tt.owner, tt.namespace, got)
		}
	}
}
