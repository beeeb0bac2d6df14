package guard

import (
	"sync"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// TestRulesChangeWhileOthersJudge is for the race detector; every verdict must be that of one rule set or the other.
func TestRulesChangeWhileOthersJudge(t *testing.T) {
	g := newTestGuard(t, nil)
	rails := []*v1alpha1.Guardrail{gr(t, "platform", noEviction)}
	exceptions := []*v1alpha1.GuardrailException{lifting(t, healthySpec, noon.Add(time.Hour), healthyRule)}
	g.OnChange(func(Change) { g.Policy() })
	with := g.RuleSetHash("ConditionSet")
	g.SetGuardrails(rails)
	without := g.RuleSetHash("ConditionSet")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 50 {
				switch i {
				case 0:
					g.SetGuardrails(rails[:n%2])
				case 1:
					g.SetExceptions(exceptions[:n%2])
				case 2:
					if errs := g.CheckGuardrail(rails[0]); len(errs) > 0 {
						t.Error(errs)
					}
				default:
					_, v := Admit(t.Context(), g, stored(t, evictingSpec))
					refused := v.RuleSetHash == without
					if v.RuleSetHash != with && !refused || v.Allowed == refused {
						t.Errorf("rule set %s, allowed %v", v.RuleSetHash, v.Allowed)
					}
					Admit(t.Context(), g, stored(t, healthySpec))
				}
			}
		})
	}
	all.Wait()
}
