package guard

import (
	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// termsOfRegistration compiles a HealthCheckRegistration's expressions.
func termsOfRegistration(e *evaluation) (any, error) {
	hcr, err := read[v1alpha1.HealthCheckRegistration](e.object)
	if err != nil {
		return nil, err
	}
	return registration.TermsOf(hcr), nil
}
