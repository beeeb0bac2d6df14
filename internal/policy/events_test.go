package policy

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// recorderFunc takes Events in the API server's place.
type recorderFunc func(kind, reason, action string)

// Eventf implements events.EventRecorder.
func (f recorderFunc) Eventf(_, _ runtime.Object, kind, reason, action, _ string, _ ...any) {
	f(kind, reason, action)
}

func TestEventsTellOfConditionsThatTurned(t *testing.T) {
	is := func(conditionType, status, reason string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionStatus(status), Reason: reason}
	}
	fine := []metav1.Condition{is("Accepted", "True", "Admitted"), is("Ready", "True", "Operative")}
	and := func(more ...metav1.Condition) []metav1.Condition { return slices.Concat(fine, more) }
	for name, c := range map[string]struct {
		before, after []metav1.Condition
		want          []string
	}{
		"admitted":       {nil, fine, []string{"Normal Admitted Accepted"}},
		"nothing turned": {fine, fine, nil},
		"refused, which is told once": {
			fine, []metav1.Condition{is("Accepted", "False", "RuleViolated"), is("Ready", "False", "RuleViolated"), is("Stalled", "True", "RuleViolated")},
			[]string{"Warning RuleViolated Accepted"},
		},
		"stuck for another reason":    {fine, and(is("Stalled", "True", "Forbidden")), []string{"Warning Forbidden Stalled"}},
		"no longer stuck":             {and(is("Stalled", "True", "Forbidden")), fine, nil},
		"a limit":                     {fine, and(is("LimitReached", "True", "TooManyTainted")), []string{"Warning TooManyTainted LimitReached"}},
		"another limit":               {and(is("LimitReached", "True", "TooManyTainted")), and(is("LimitReached", "True", "MaxNodesReached")), []string{"Warning MaxNodesReached LimitReached"}},
		"no limit any more":           {and(is("LimitReached", "True", "TooManyTainted")), fine, []string{"Normal LimitCleared LimitReached"}},
		"the breaker":                 {fine, and(is("BreakerOpen", "True", "TooManyMatchAtOnce")), []string{"Warning TooManyMatchAtOnce BreakerOpen"}},
		"the breaker is closed":       {and(is("BreakerOpen", "True", "TooManyMatchAtOnce")), fine, []string{"Normal BreakerClosed BreakerOpen"}},
		"reset, and now at the limit": {and(is("BreakerOpen", "True", "TooManyMatchAtOnce")), and(is("LimitReached", "True", "TooManyTainted")), []string{"Warning TooManyTainted LimitReached", "Normal BreakerClosed BreakerOpen"}},
		"paused":                      {fine, []metav1.Condition{fine[0], is("Ready", "True", "Paused")}, []string{"Normal Paused Ready"}},
		"frozen":                      {fine, []metav1.Condition{fine[0], is("Ready", "True", "Frozen")}, []string{"Normal Frozen Ready"}},
		"thawed":                      {[]metav1.Condition{fine[0], is("Ready", "True", "Frozen")}, fine, []string{"Normal Resumed Ready"}},
		"still paused":                {[]metav1.Condition{is("Ready", "True", "Paused")}, []metav1.Condition{is("Ready", "True", "Paused")}, nil},
		"no longer paused":            {[]metav1.Condition{fine[0], is("Ready", "True", "Paused")}, fine, []string{"Normal Resumed Ready"}},
		"what Guardrails forbid isn't known any more":   {fine, []metav1.Condition{fine[0], is("Ready", "Unknown", "GuardrailsUnknown")}, []string{"Warning GuardrailsUnknown Ready"}},
		"it is known again":                             {[]metav1.Condition{fine[0], is("Ready", "Unknown", "GuardrailsUnknown")}, fine, []string{"Normal Resumed Ready"}},
		"known again, and paused":                       {[]metav1.Condition{fine[0], is("Ready", "Unknown", "GuardrailsUnknown")}, []metav1.Condition{fine[0], is("Ready", "True", "Paused")}, []string{"Normal Paused Ready"}},
		"deleted while frozen, which holds up the undo": {[]metav1.Condition{fine[0], is("Ready", "True", "Frozen")}, []metav1.Condition{fine[0], is("Ready", "False", "Undoing")}, nil},
		"an exception that ended as it was meant to":    {[]metav1.Condition{is("Ready", "True", "Active")}, []metav1.Condition{is("Ready", "True", "Expired")}, []string{"Normal Expired Ready"}},
		"an exception that was over from the beginning": {nil, []metav1.Condition{is("Ready", "False", "Expired"), is("Stalled", "True", "Expired")}, []string{"Warning Expired Stalled"}},
		"an exception began":                            {nil, []metav1.Condition{is("Ready", "True", "Active")}, []string{"Normal Active Ready"}},
		"targets that aren't looked at yet":             {fine, and(is("TargetsHealthy", "Unknown", "Starting")), nil},
		"and are healthy":                               {and(is("TargetsHealthy", "Unknown", "Starting")), and(is("TargetsHealthy", "True", "AllHealthy")), nil},
		"or aren't":                                     {and(is("TargetsHealthy", "Unknown", "Starting")), and(is("TargetsHealthy", "False", "SomeUnhealthy")), []string{"Warning SomeUnhealthy TargetsHealthy"}},
		"targets that are healthy again":                {and(is("TargetsHealthy", "False", "SomeUnhealthy")), and(is("TargetsHealthy", "True", "AllHealthy")), []string{"Normal AllHealthy TargetsHealthy"}},
		"targets that nobody looks at any more":         {and(is("TargetsHealthy", "True", "AllHealthy")), and(is("TargetsHealthy", "Unknown", "Frozen")), nil},
		"still working on it":                           {fine, and(is("Reconciling", "True", "Retrying")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			EmitTransitions(recorderFunc(func(kind, reason, action string) { got = append(got, kind+" "+reason+" "+action) }), &v1alpha1.ConditionSet{}, c.before, c.after)
			if !slices.Equal(got, c.want) {
				t.Errorf("Events are %q, want %q", got, c.want)
			}
		})
	}
}
