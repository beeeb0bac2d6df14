package timing

import (
	"testing"
	"time"
)

func TestTheZeroValueIsProductions(t *testing.T) {
	var production Timings
	third := Divided(3)
	for name, test := range map[string]struct {
		of   func(Timings) time.Duration
		want time.Duration
	}{
		"settle":         {Timings.Settle, time.Minute},
		"scale-up pace":  {Timings.ScaleUpWindow, time.Minute},
		"quiet watch":    {Timings.MaxWatchSilence, 20 * time.Second},
		"orphan":         {Timings.Orphan, time.Minute},
		"look at target": {Timings.TargetTimeout, 40 * time.Second},
		"request":        {Timings.Request, 70 * time.Second},
	} {
		if got := test.of(production); got != test.want {
			t.Errorf("%s: %s instead of %s", name, got, test.want)
		}
		if got := test.of(third); got != test.want/3 {
			t.Errorf("a third of %s: %s instead of %s", name, got, test.want/3)
		}
	}
	if !production.Production() || third.Production() {
		t.Error("a third isn't production's, and the zero value is")
	}
}
