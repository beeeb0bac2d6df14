package health

import "slices"

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
