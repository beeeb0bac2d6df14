package outlier_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func TestWhatHoldsInEachState(t *testing.T) {
	first, second, other := &outlier.Policy{UID: "a", Generation: 1}, &outlier.Policy{UID: "a", Generation: 2}, &outlier.Policy{UID: "b", Generation: 1}
	refused := &outlier.Policy{UID: "a", Generation: 2, Refused: true}
	for name, c := range map[string]struct {
		wanted, before         *outlier.Policy
		acting, paused, frozen *outlier.Policy
	}{
		"nothing changed":                   {first, first, first, first, first},
		"a new one":                         {first, nil, first, nil, nil},
		"it was edited":                     {second, first, second, first, first},
		"it was deleted":                    {nil, first, nil, nil, first},
		"rules refuse it now":               {refused, first, refused, refused, first},
		"another one holds":                 {other, first, other, nil, first},
		"it is admitted after all":          {second, refused, second, nil, refused},
		"there is none, and there was none": {nil, refused, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for state, want := range map[lifecycle.State]*outlier.Policy{lifecycle.Active: c.acting, lifecycle.Paused: c.paused, lifecycle.Frozen: c.frozen} {
				if got := outlier.EffectivePolicy(state, c.wanted, c.before); got != want {
					t.Errorf("state %d: %+v, want %+v", state, got, want)
				}
			}
		})
	}
}
