package health

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PersistentVolumeClaim is healthy when it is Bound; Pending is Progressing.
func PersistentVolumeClaim(c *corev1.PersistentVolumeClaim) Result {
	switch c.Status.Phase {
	case corev1.ClaimBound:
		return healthy()
	case corev1.ClaimLost:
		return unhealthy("PersistentVolumeClaim has lost its volume")
	}
	return progressing("PersistentVolumeClaim isn't bound yet")
}

// Service is healthy when it has an address or needs none. One of type LoadBalancer without one is Progressing.
func Service(s *corev1.Service) Result {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return progressing("Service of type LoadBalancer has no address")
	}
	return healthy()
}

// CustomResourceDefinition is healthy when it got its names and is served.
func CustomResourceDefinition(definition *unstructured.Unstructured) Result {
	const kind = "CustomResourceDefinition"
	names, established := standingOf(definition, "NamesAccepted"), standingOf(definition, "Established")
	return firstOf(wanted(kind, "NamesAccepted", names), wanted(kind, "Established", established))
}

// ManagedResource (of Gardener's resource manager) is healthy when its controller has seen the spec, ResourcesApplied and
// ResourcesHealthy are True, and ResourcesProgressing isn't True for as long as threshold; zero doesn't ask for that.
func ManagedResource(resource *unstructured.Unstructured, threshold time.Duration, now time.Time) Result {
	const kind = "ManagedResource"
	observed, _, _ := unstructured.NestedInt64(resource.Object, "status", "observedGeneration")
	r := firstOf(
		seen(kind, resource.GetGeneration(), observed),
		wanted(kind, "ResourcesApplied", standingOf(resource, "ResourcesApplied")),
		wanted(kind, "ResourcesHealthy", standingOf(resource, "ResourcesHealthy")),
	)
	if r.Status != True || threshold <= 0 {
		return r
	}
	c := Find(resource, "ResourcesProgressing")
	if c == nil || c.Status != True || now.Before(c.LastTransition.Add(threshold)) {
		return r
	}
	return unhealthy(fmt.Sprintf("resources of ManagedResource progress since %s, longer than %s (%s): %s",
		c.LastTransition.UTC().Format(time.RFC3339), threshold, c.Reason, c.Message))
}

func standingOf(object *unstructured.Unstructured, conditionType string) *standing {
	_, entry := find(object, conditionType)
	if entry == nil {
		return nil
	}
	return &standing{text(entry, "status"), text(entry, "reason"), text(entry, "message")}
}
