package v1alpha1

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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
	in := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		in.MatchExpressions = append(in.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return compiled(in)
}

// AsSelector compiles the selector. Its error names the key or value that can't be a label's.
func (s *NodeSelector) AsSelector() (labels.Selector, error) {
	in := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		in.MatchExpressions = append(in.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return compiled(in)
}

// compiled says of keys and values that no label has what one may have.
func compiled(in *metav1.LabelSelector) (labels.Selector, error) {
	for _, key := range slices.Sorted(maps.Keys(in.MatchLabels)) {
		if err := fits(key, in.MatchLabels[key]); err != nil {
			return nil, fmt.Errorf("matchLabels: %w", err)
		}
	}
	for i, r := range in.MatchExpressions {
		if err := fits(r.Key, r.Values...); err != nil {
			return nil, fmt.Errorf("matchExpressions[%d]: %w", i, err)
		}
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
