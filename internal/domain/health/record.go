package health

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OwnedConditions on a target names, with commas between, the condition types that HealthCheckRegistrations decide. It is
// v1alpha1.AnnotationOwnedConditions, which programs that only check in Go need no API package for.
const OwnedConditions = "autohealer.resourcestack.com/owned-conditions"

// Owned are the condition types of a target that its record claims, sorted.
func Owned(target metav1.Object) []string {
	var types []string
	for _, t := range strings.Split(target.GetAnnotations()[OwnedConditions], ",") {
		if t = strings.TrimSpace(t); t != "" {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Ours says whether a target's condition of that type is Autohealer's: its record claims it, and it is of the form that checks are
// written in. The record alone proves nothing: whoever may annotate the target could claim what others wrote to its status.
func Ours(target *unstructured.Unstructured, conditionType string) bool {
	return Owns(target, conditionType) && Find(target, conditionType).WrittenByChecks()
}

// Owns says whether a target's record claims a condition type.
func Owns(target *unstructured.Unstructured, conditionType string) bool {
	return slices.Contains(Owned(target), conditionType)
}

// Claim is the record with a condition type added, or taken away.
func Claim(target *unstructured.Unstructured, conditionType string, owned bool) string {
	types := slices.DeleteFunc(Owned(target), func(t string) bool { return t == conditionType })
	if owned {
		types = append(types, conditionType)
	}
	slices.Sort(types)
	return strings.Join(types, ",")
}
