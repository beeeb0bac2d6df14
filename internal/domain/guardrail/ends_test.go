package guardrail_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

func TestWhenAnExceptionEnds(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		expiresAt v1alpha1.Timestamp
		want      time.Time
	}{
		"at its date":                             {"2026-03-03T00:00:00Z", time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)},
		"at its date, in another time zone":       {"2026-03-03T02:00:00+02:00", time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)},
		"7 days after its creation at the latest": {"2027-01-01T00:00:00Z", time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)},
		"before it began":                         {"2026-02-01T00:00:00Z", time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)},
		"in the past, when nobody can read it":    {"next week", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			x := &v1alpha1.GuardrailException{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)}}
			x.Spec.ExpiresAt = c.expiresAt
			if got := guardrail.Ends(x); !got.Equal(c.want) {
				t.Errorf("it ends at %s, want %s", got, c.want)
			}
		})
	}
}
