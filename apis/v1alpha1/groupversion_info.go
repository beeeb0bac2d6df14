// Package v1alpha1 holds Autohealer's kinds: what healing may do, declared.
// +groupName=autohealer.resourcestack.com
// +kubebuilder:object:generate=true
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "autohealer.resourcestack.com", Version: "v1alpha1"}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds every kind of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ConditionSet{}, &ConditionSetList{},
		&Guardrail{}, &GuardrailList{},
		&GuardrailException{}, &GuardrailExceptionList{},
		&WeederConfig{}, &WeederConfigList{},
		&ProbeConfig{}, &ProbeConfigList{},
		&OutlierPolicy{}, &OutlierPolicyList{},
		&HealthCheckRegistration{}, &HealthCheckRegistrationList{},
		// +kubebuilder:scaffold:kinds
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
