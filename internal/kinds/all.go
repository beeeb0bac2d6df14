package kinds

import (
	"reflect"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	// +kubebuilder:scaffold:imports
)

// All kinds, in the order in which people are shown them.
var All = []*Kind{
	{
		Object: &v1alpha1.ConditionSet{}, List: &v1alpha1.ConditionSetList{}, Finalizer: true,
		Terms:    terms(func(cs, old *v1alpha1.ConditionSet, _ Setting) condition.Terms { return condition.TermsOf(cs, old) }),
		Forecast: reflect.TypeFor[condition.Forecast](),
	}, {
		Object: &v1alpha1.WeederConfig{}, List: &v1alpha1.WeederConfigList{}, Namespaced: true, Tenants: true, // a deleted pod needs no undoing
		Terms:    terms(func(wc, _ *v1alpha1.WeederConfig, s Setting) weeder.Terms { return weeder.TermsOf(wc, s.OwnNamespace) }),
		Forecast: reflect.TypeFor[weeder.Forecast](),
	}, {
		Object: &v1alpha1.ProbeConfig{}, List: &v1alpha1.ProbeConfigList{}, Namespaced: true, Tenants: true, Finalizer: true,
		Terms:    terms(func(pc, _ *v1alpha1.ProbeConfig, s Setting) probe.Terms { return probe.TermsOf(pc, s.OwnNamespace) }),
		Forecast: reflect.TypeFor[probe.Forecast](),
	}, {
		Object: &v1alpha1.OutlierPolicy{}, List: &v1alpha1.OutlierPolicyList{}, Namespaced: true, Tenants: true, Finalizer: true,
		Forecast: reflect.TypeFor[outlier.Forecast](),
	}, {
		Object: &v1alpha1.HealthCheckRegistration{}, List: &v1alpha1.HealthCheckRegistrationList{}, Finalizer: true,
		Terms: terms(func(hcr, old *v1alpha1.HealthCheckRegistration, s Setting) registration.Terms {
			return registration.TermsOf(hcr, old, s.Requested)
		}),
		Forecast: reflect.TypeFor[registration.Forecast](),
	}, {
		Object: &v1alpha1.Guardrail{}, List: &v1alpha1.GuardrailList{}, RulesOver: true,
		Terms: &Terms{Type: reflect.TypeFor[guardrail.Terms]()}, Forecast: reflect.TypeFor[guardrail.Forecast](),
	}, {
		Object: &v1alpha1.GuardrailException{}, List: &v1alpha1.GuardrailExceptionList{}, RulesOver: true,
		Terms: &Terms{Type: reflect.TypeFor[guardrail.ExceptionTerms]()}, Forecast: reflect.TypeFor[guardrail.ExceptionForecast](),
	},
	// +kubebuilder:scaffold:kinds
}
