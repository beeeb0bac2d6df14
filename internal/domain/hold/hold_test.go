package hold_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/hold"
)

var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

func annotated(text string) map[string]string {
	return map[string]string{"autohealer.resourcestack.com/hold-until": text}
}

func TestAHoldEndsWithItsTimeAndOneThatCantBeReadDoesnt(t *testing.T) {
	const about = "the annotation autohealer.resourcestack.com/hold-until keeps Autohealer from it"
	for name, c := range map[string]struct {
		annotations map[string]string
		server      time.Time
		holds       bool
		again       time.Time
		says        string
	}{
		"none":                             {annotations: map[string]string{"other": "2026-11-21T05:00:00Z"}},
		"in two hours":                     {annotated("2026-11-21T05:00:00Z"), time.Time{}, true, now.Add(2 * time.Hour), about + " until 2026-11-21T05:00:00Z"},
		"in another zone":                  {annotated("2026-11-21T05:00:00+01:00"), time.Time{}, true, now.Add(time.Hour), about + " until 2026-11-21T04:00:00Z"},
		"over":                             {annotated("2026-11-21T03:00:00Z"), time.Time{}, false, time.Time{}, about + " until 2026-11-21T03:00:00Z"},
		"over by our clock alone":          {annotated("2026-11-21T03:00:00Z"), now.Add(-time.Second), true, now.Add(time.Second), about + " until 2026-11-21T03:00:00Z"},
		"over by the API server's alone":   {annotated("2026-11-21T03:00:01Z"), now.Add(time.Minute), true, now.Add(time.Second), about + " until 2026-11-21T03:00:01Z"},
		"seven days":                       {annotated("2026-11-28T03:00:00Z"), time.Time{}, true, now.Add(7 * 24 * time.Hour), about + " until 2026-11-28T03:00:00Z"},
		"a typo of a century":              {annotated("2126-11-21T05:00:00Z"), time.Time{}, true, time.Date(2126, 11, 21, 5, 0, 0, 0, time.UTC), about + " until 2126-11-21T05:00:00Z: that is more than 7 days ahead; correct it if it is a mistake"},
		"garbage":                          {annotated("tomorrow"), time.Time{}, true, time.Time{}, about + `: "tomorrow" is no time such as 2026-11-21T03:00:00Z; correct or remove it`},
		"a date alone":                     {annotated("2026-11-22"), time.Time{}, true, time.Time{}, about + `: "2026-11-22" is no time such as 2026-11-21T03:00:00Z; correct or remove it`},
		"nothing":                          {annotated(""), time.Time{}, true, time.Time{}, about + `: "" is no time such as 2026-11-21T03:00:00Z; correct or remove it`},
		"the first moment there is no day": {annotated("0001-01-01T00:00:00Z"), time.Time{}, true, time.Time{}, about + `: "0001-01-01T00:00:00Z" is no time such as 2026-11-21T03:00:00Z; correct or remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold.Of(c.annotations)
			if got := h.Active(now, c.server); got != c.holds {
				t.Errorf("holds: %t", got)
			}
			if got := h.RequeueAt(now, c.server); !got.Equal(c.again) {
				t.Errorf("looks again at %s, want %s", got, c.again)
			}
			if got := h.Message(now); got != c.says {
				t.Errorf("says %s\nwant %s", got, c.says)
			}
		})
	}
}

func TestWhichHoldsAreTheSame(t *testing.T) {
	a, b := hold.Of(annotated("2026-11-21T05:00:00Z")), hold.Of(annotated("2026-11-21T06:00:00Z"))
	var none *hold.Hold
	if !a.Same(hold.Of(annotated("2026-11-21T05:00:00Z"))) || !none.Same(nil) || a.Same(b) || a.Same(nil) || none.Same(a) {
		t.Error("wrong")
	}
}

func TestWhatIsWrittenIsWhatIsRead(t *testing.T) {
	until := now.Add(time.Hour).In(time.FixedZone("", 3600))
	if got := hold.Text(until); got != "2026-11-21T04:00:00Z" || !hold.Of(annotated(got)).Until.Equal(until) {
		t.Errorf("got %s", got)
	}
}
