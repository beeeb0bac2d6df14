package policy

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func named(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

func TestPace(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		look func(p *StatusThrottle) time.Duration
		want time.Duration
	}{
		{"the first look waits for nothing", func(p *StatusThrottle) time.Duration { return p.Wait(named("a"), now, false) }, 0},
		{"the second look at a policy waits until a second is over", func(p *StatusThrottle) time.Duration {
			p.Wait(named("a"), now, false)
			return p.Wait(named("a"), now.Add(300*time.Millisecond), false)
		}, 700 * time.Millisecond},
		{"what acting waits for never waits", func(p *StatusThrottle) time.Duration {
			p.Wait(named("a"), now, false)
			return p.Wait(named("a"), now, true)
		}, 0},
		{"another policy doesn't wait for the first", func(p *StatusThrottle) time.Duration {
			p.Wait(named("a"), now, false)
			return p.Wait(named("b"), now, false)
		}, 0},
		{"after twenty policies at once the next one waits a tenth of a second", func(p *StatusThrottle) time.Duration {
			for i := range 20 {
				p.Wait(named(fmt.Sprint(i)), now, false)
			}
			return p.Wait(named("a"), now, false)
		}, 100 * time.Millisecond},
		{"who waits has the next turn, whoever else comes before it", func(p *StatusThrottle) time.Duration {
			for i := range 20 {
				p.Wait(named(fmt.Sprint(i)), now, false)
			}
			p.Wait(named("a"), now, false)
			for i := range 20 {
				p.Wait(named(fmt.Sprint("late", i)), now.Add(100*time.Millisecond), false)
			}
			return p.Wait(named("a"), now.Add(100*time.Millisecond), false)
		}, 0},
		{"and keeps it when it looks too early", func(p *StatusThrottle) time.Duration {
			for i := range 20 {
				p.Wait(named(fmt.Sprint(i)), now, false)
			}
			p.Wait(named("a"), now, false)
			p.Wait(named("b"), now, false)
			return p.Wait(named("a"), now.Add(40*time.Millisecond), false)
		}, 60 * time.Millisecond},
		{"a policy that is gone is forgotten", func(p *StatusThrottle) time.Duration {
			p.Wait(named("a"), now, false)
			p.Forget(named("a"))
			return p.Wait(named("a"), now, false)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.look(&StatusThrottle{}); got.Round(time.Millisecond) != c.want {
				t.Errorf("waits %v, want %v", got, c.want)
			}
		})
	}
}
