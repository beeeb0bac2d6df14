package v1alpha1

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// LabelSelector selects objects by label; all of it must match. It is Kubernetes' own label selector, with bounds.
type LabelSelector struct {
	// matchLabels are labels that an object must have, with these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="a label key has at most 317 characters, a value at most 63"
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// matchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement is one requirement on an object's labels.
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",message="operators In and NotIn need values; Exists and DoesNotExist take none"
type LabelSelectorRequirement struct {
	// key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// operator relates the key to the values. NotIn and DoesNotExist also match objects without the label.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values for In and NotIn.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// Empty says whether the selector requires nothing, and so selects everything.
func (s *LabelSelector) Empty() bool { return len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 }

// AsSelector compiles the selector. Its error names the key or value that can't be a label's.
func (s *LabelSelector) AsSelector() (labels.Selector, error) {
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if err := fits(key, s.MatchLabels[key]); err != nil {
			return nil, fmt.Errorf("matchLabels: %w", err)
		}
	}
	in := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for i, r := range s.MatchExpressions {
		if err := fits(r.Key, r.Values...); err != nil {
			return nil, fmt.Errorf("matchExpressions[%d]: %w", i, err)
		}
		in.MatchExpressions = append(in.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return metav1.LabelSelectorAsSelector(in)
}

func fits(key string, values ...string) error {
	if len(content.IsLabelKey(key)) > 0 {
		return fmt.Errorf("%q is no key of a label; write one such as team or example.com/team", key)
	}
	for _, value := range values {
		if len(content.IsLabelValue(value)) > 0 {
			return fmt.Errorf("label %s can't be %q; write at most 63 letters, digits, -, _ and ., a letter or digit at either end", key, value)
		}
	}
	return nil
}
