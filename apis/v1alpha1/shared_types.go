package v1alpha1

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Duration is a length of time as Go writes it ("90s", "5m", "1h30m"), at most 8760h.
// It is kept as the text that was read: rewriting "5m" to "5m0s" would show as drift in every GitOps tool, and one
// undecodable stored object would stop the informers of all.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$')`,message="write a duration such as 30s, 10m or 1h30m"
// +kubebuilder:validation:XValidation:rule=`!self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') || self.matches('^(0*[0-9]{1,4}([.][0-9]+)?h|0*[0-9]{1,6}([.][0-9]+)?m|0*[0-9]{1,8}([.][0-9]+)?s|0*[0-9]{1,11}([.][0-9]+)?ms)+$') && duration(self) <= duration('8760h')`,message="must be at most 8760h"
type Duration string

// Or gives the duration, or fallback when none was written. Text that is no duration, which the CRD's schema refuses,
// gives an error.
func (d Duration) Or(fallback time.Duration) (time.Duration, error) {
	if d == "" {
		return fallback, nil
	}
	return time.ParseDuration(string(d))
}

// Timestamp is a moment as RFC 3339 writes it ("2026-03-01T12:00:00Z"). It is kept as the text that was read, because one
// undecodable stored object would stop the informers of all.
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:Format=date-time
type Timestamp string

// Time gives the moment; text that is none gives an error.
func (t Timestamp) Time() (time.Time, error) { return time.Parse(time.RFC3339, string(t)) }

// Mode says whether a policy acts.
// +kubebuilder:validation:Enum=Enforce;Observe
type Mode string

const (
	// Enforce acts.
	Enforce Mode = "Enforce"
	// Observe computes and reports, and touches nothing; what the policy did before is undone.
	Observe Mode = "Observe"
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

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *ConditionSet) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *ConditionSet) GetConditions() []metav1.Condition { return p.Status.Conditions }

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *WeederConfig) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *WeederConfig) GetConditions() []metav1.Condition { return p.Status.Conditions }

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *ProbeConfig) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *ProbeConfig) GetConditions() []metav1.Condition { return p.Status.Conditions }

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *OutlierPolicy) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *OutlierPolicy) GetConditions() []metav1.Condition { return p.Status.Conditions }

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *HealthCheckRegistration) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *HealthCheckRegistration) GetConditions() []metav1.Condition { return p.Status.Conditions }

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *Guardrail) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *Guardrail) GetConditions() []metav1.Condition { return p.Status.Conditions }

// GetObservedGeneration gives the generation of spec that the status describes; -1 before the first look.
func (p *GuardrailException) GetObservedGeneration() int64 { return p.Status.ObservedGeneration }

// GetConditions gives the conditions of the status, as they are stored: nobody may change them.
func (p *GuardrailException) GetConditions() []metav1.Condition { return p.Status.Conditions }
