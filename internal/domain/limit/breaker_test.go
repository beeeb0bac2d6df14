package limit_test

import (
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func TestABreakerIsClosedByWhoeverLookedAndNobodyElse(t *testing.T) {
	opened := limit.Opening{ID: "first", OpenedAt: time.Unix(1, 0), Turned: 3, Targets: 10}
	for name, c := range map[string]struct {
		do          func(b *limit.Breaker)
		holds, open bool
		id          string
	}{
		"at first it is closed": {func(*limit.Breaker) {}, false, false, ""},
		"it opens":              {func(b *limit.Breaker) { b.Open(opened) }, true, true, "first"},
		"the wave is over":      {func(b *limit.Breaker) { b.Open(opened); b.Close() }, true, true, "first"},
		"a reset of another":    {func(b *limit.Breaker) { b.Open(opened); b.ResetBy("second") }, true, true, "first"},
		"a reset without an ID": {func(b *limit.Breaker) { b.Open(opened); b.ResetBy("") }, true, true, "first"},
		"a reset":               {func(b *limit.Breaker) { b.Open(opened); b.ResetBy("first") }, false, true, "first"},
		"a reset, and over":     {func(b *limit.Breaker) { b.Open(opened); b.ResetBy("first"); b.Close() }, false, false, ""},
		"reset, and another wave": {func(b *limit.Breaker) { b.Open(opened); b.ResetBy("first"); b.Open(limit.Opening{ID: "second"}) },
			true, true, "second"},
		"of another process":       {func(b *limit.Breaker) { b.Restore(limit.Opening{ID: "theirs"}) }, true, true, "theirs"},
		"of another one, and ours": {func(b *limit.Breaker) { b.Open(opened); b.Restore(limit.Opening{ID: "theirs"}) }, true, true, "first"},
		"old news after a reset":   {func(b *limit.Breaker) { b.Open(opened); b.ResetBy("first"); b.Close(); b.Restore(opened) }, false, false, ""},
		"it follows another":       {func(b *limit.Breaker) { b.Follow(&opened) }, true, true, "first"},
		"it follows to the end":    {func(b *limit.Breaker) { b.Follow(&opened); b.Follow(nil) }, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b limit.Breaker
			c.do(&b)
			if o, open := b.Opening(); b.Blocks() != c.holds || open != c.open || o.ID != c.id {
				t.Errorf("holds %t, open %t, %q; want %t, %t, %q", b.Blocks(), open, o.ID, c.holds, c.open, c.id)
			}
		})
	}
}

func TestWhoFollowsKnowsWhatChanged(t *testing.T) {
	var b limit.Breaker
	for i, c := range []struct {
		stored  *limit.Opening
		changed bool
	}{
		{nil, false}, {&limit.Opening{ID: "a"}, true}, {&limit.Opening{ID: "a"}, false}, {&limit.Opening{ID: "a", Reset: true}, true},
		{&limit.Opening{ID: "b"}, true}, {nil, true},
	} {
		if changed := b.Follow(c.stored); changed != c.changed {
			t.Errorf("step %d: changed %t, want %t", i, changed, c.changed)
		}
	}
}
