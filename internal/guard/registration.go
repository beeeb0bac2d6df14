package guard

import (
	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// termsOfRegistration compiles a HealthCheckRegistration's expressions. A request is asked more of those that it adds.
func termsOfRegistration(e *evaluation) (any, error) {
	hcr, err := read[v1alpha1.HealthCheckRegistration](e.object)
	if err != nil {
		return nil, err
	}
	if e.request == nil {
		return registration.TermsOf(hcr), nil
	}
	old, err := read[v1alpha1.HealthCheckRegistration](e.oldObject)
	if err != nil {
		old = nil // which can't be read, either
	}
	return registration.TermsOfNew(hcr, old), nil
}
