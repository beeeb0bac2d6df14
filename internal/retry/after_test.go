package retry

import (
	"testing"
	"time"
)

func TestWhenToLookAgain(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		deadline    time.Time
		least, most time.Duration
	}{
		"no deadline":        {time.Time{}, 30 * time.Second, 33 * time.Second},
		"one that is far":    {now.Add(time.Hour), 30 * time.Second, 33 * time.Second},
		"one that comes":     {now.Add(time.Second), time.Second, time.Second},
		"one that has begun": {now.Add(-time.Second), time.Millisecond, time.Millisecond},
	} {
		waits := map[time.Duration]bool{}
		for range 20 {
			wait := RequeueAfter(30*time.Second, c.deadline, now)
			if waits[wait] = true; wait < c.least || wait > c.most {
				t.Errorf("with %s it waits %s", name, wait)
			}
		}
		if spread := len(waits) > 1; spread != (c.most > c.least) {
			t.Errorf("with %s the waits are %v", name, waits)
		}
	}
}
