package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
