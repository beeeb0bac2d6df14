package outlier

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReadPatchStatus returns the condition of an EnvoyPatchPolicy that Envoy Gateway has set for its current generation: Programmed, or Accepted
// where that is False; nil while it has set none.
func ReadPatchStatus(object map[string]any) (*metav1.Condition, error) {
	var read struct {
		metav1.ObjectMeta `json:"metadata"`

		Status struct {
			Ancestors []struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"ancestors"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &read); err != nil {
		return nil, fmt.Errorf("read the status of an EnvoyPatchPolicy: %w", err)
	}
	var status *metav1.Condition
	for _, ancestor := range read.Status.Ancestors {
		for _, c := range ancestor.Conditions {
			refused := c.Type == "Accepted" && c.Status == metav1.ConditionFalse
			if c.ObservedGeneration == read.Generation && (refused || c.Type == "Programmed" && status == nil) {
				status = &c
			}
		}
	}
	return status, nil
}
