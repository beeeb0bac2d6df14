package registration

import "github.com/resourcestack/autohealer/apis/v1alpha1"

// SampleSize bounds how many problems are told.
const SampleSize = 20

// Terms are what a registration says by itself, whatever the cluster is like.
type Terms struct {
	// Problems are what can't be read, or can't be meant: where, and why, up to SampleSize.
	Problems []string
}

// TermsOf reads a registration's terms.
func TermsOf(hcr *v1alpha1.HealthCheckRegistration) Terms {
	_, problems := Read(hcr)
	return Terms{Problems: problems[:min(len(problems), SampleSize)]}
}
