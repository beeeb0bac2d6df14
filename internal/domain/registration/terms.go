package registration

import (
	"slices"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Terms are what a registration says by itself, whatever the cluster is like.
type Terms struct {
	// Problems are what can't be read, or can't be meant: where, and why, up to sample.Size.
	Problems []string
}

// TermsOf reads the terms of a registration that is stored.
func TermsOf(hcr *v1alpha1.HealthCheckRegistration) Terms {
	_, problems := Read(hcr)
	return termsOf(problems)
}

// TermsOfNew reads the terms of a registration that is about to be stored in place of an old one, nil when there is none. More is
// asked of the expressions that the old one doesn't have.
func TermsOfNew(hcr, old *v1alpha1.HealthCheckRegistration) Terms {
	stored := reader{}
	if old != nil {
		stored.registration(old)
	}
	r := reader{isNew: func(text string) bool { return !slices.Contains(stored.texts, text) }}
	r.registration(hcr)
	return termsOf(r.problems)
}

func termsOf(problems []string) Terms {
	return Terms{Problems: problems[:min(len(problems), sample.Size)]}
}
