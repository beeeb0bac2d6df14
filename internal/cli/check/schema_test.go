package check

import (
	"testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// TestSimilarFields are those that stand where the unknown one stands.
func TestSimilarFields(t *testing.T) {
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for kind, fields := range map[string]map[string]string{
		"ConditionSet": {
			"specc": "; did you mean spec?", "spec.efect": "; did you mean effect?", "spec.taintkey": "; did you mean taintKey?",
			"spec.conditions.KernelDeadlock.statu": "; did you mean status?", "spec.conditions.example.com/a.b.statu": "; did you mean status?",
			"spec.statu": "", "spec.nonsense": "", "metadata.lables": "", "spec.effect.inner": "",
		},
		"HealthCheckRegistration": {"spec.checks[0].objekt": "; did you mean object?", "spec.checks[0].evaluate.buildin": "; did you mean builtin?"},
	} {
		for field, want := range fields {
			if got := c.definitions[v1alpha1.GroupVersion.WithKind(kind)].similarFields(field); got != want {
				t.Errorf("%s %s: got %q, want %q", kind, field, got, want)
			}
		}
	}
}
