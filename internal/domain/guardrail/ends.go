package guardrail

import (
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// LongestException is how long an exception may live.
const LongestException = 7 * 24 * time.Hour

// Ends is when an exception's time is over: at its date, and at the latest 7 days after its creation. A date that can't be
// read lies in the past.
func Ends(x *v1alpha1.GuardrailException) time.Time {
	at, err := x.Spec.ExpiresAt.Time()
	if err != nil {
		return time.Time{}
	}
	if latest := x.CreationTimestamp.Add(LongestException); at.After(latest) {
		return latest
	}
	return at
}
