package v1alpha1

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
)

// RequiredStatus is a condition status just as the user wrote it: a YAML boolean, or True, False or Unknown as a string.
//
// A struct, because runtime.DefaultUnstructuredConverter ignores MarshalJSON on string kinds; its field is exported,
// because equality.Semantic.DeepEqual and cmp.Diff panic on unexported ones.
// +kubebuilder:validation:Type=""
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:Enum=true;false;"True";"False";"Unknown";"true";"false";"unknown"
type RequiredStatus struct {
	// JSON is the text that was read: `true`, `"Unknown"`.
	JSON string `json:"-"`
}

// UnmarshalJSON keeps the JSON text, whatever it is: the CRD's enum judges it, and a decoder that failed here would
// take the informer, and with it every other ConditionSet, down.
func (s *RequiredStatus) UnmarshalJSON(b []byte) error {
	s.JSON = string(bytes.TrimSpace(b))
	return nil
}

// MarshalJSON gives back the text that was read.
func (s RequiredStatus) MarshalJSON() ([]byte, error) {
	if s.JSON == "" {
		return []byte("null"), nil
	}
	return []byte(s.JSON), nil
}

// Normalized is True, False or Unknown; ok is false for text that the CRD's schema refuses.
func (s RequiredStatus) Normalized() (status corev1.ConditionStatus, ok bool) {
	switch s.JSON {
	case `true`, `"true"`, `"True"`:
		return corev1.ConditionTrue, true
	case `false`, `"false"`, `"False"`:
		return corev1.ConditionFalse, true
	case `"unknown"`, `"Unknown"`:
		return corev1.ConditionUnknown, true
	}
	return "", false
}
