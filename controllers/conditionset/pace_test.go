package conditionset

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestPace(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		look func(p *pace) time.Duration
		want time.Duration
	}{
		{"the first look waits for nothing", func(p *pace) time.Duration { return p.wait("a", now, false) }, 0},
		{"the second look at a set waits until a second is over", func(p *pace) time.Duration {
			p.wait("a", now, false)
			return p.wait("a", now.Add(300*time.Millisecond), false)
		}, 700 * time.Millisecond},
		{"what acting waits for never waits", func(p *pace) time.Duration {
			p.wait("a", now, false)
			return p.wait("a", now, true)
		}, 0},
		{"another set doesn't wait for the first", func(p *pace) time.Duration {
			p.wait("a", now, false)
			return p.wait("b", now, false)
		}, 0},
		{"after twenty sets at once the next one waits a tenth of a second", func(p *pace) time.Duration {
			for i := range 20 {
				p.wait(types.UID(fmt.Sprint(i)), now, false)
			}
			return p.wait("a", now, false)
		}, 100 * time.Millisecond},
		{"a turn that wasn't taken isn't lost", func(p *pace) time.Duration {
			for i := range 30 {
				p.wait(types.UID(fmt.Sprint(i)), now, false)
			}
			return p.wait("a", now.Add(100*time.Millisecond), false)
		}, 0},
		{"a set that is gone is forgotten", func(p *pace) time.Duration {
			p.wait("a", now, false)
			p.forget("a")
			return p.wait("a", now, false)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.look(&pace{}); got.Round(time.Millisecond) != c.want {
				t.Errorf("waits %v, want %v", got, c.want)
			}
		})
	}
}
