package v1alpha1

import (
	"time"
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
