package outlierpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestWhatChangesAtOnceIsTranslatedTogether(t *testing.T) {
	g := NewWithT(t)
	p, now := newTestPublisher(t, nil)
	world := &objects{}
	p.Clusters.Current, p.Routed = confirmed{}, world.followed(t.Context(), t)
	p.Guard.SetGuardrails(nil)
	idle := now.Waiters()
	go p.publishAll(t.Context())
	g.Eventually(p.picture, "5s", "1ms").ShouldNot(BeNil(), "the first goes at once")
	last := p.picture()
	for round := range 20 {
		for range 20 {
			p.changed()
		}
		g.Eventually(func() int { return len(p.kick) }, "5s", "1ms").Should(Equal(1))
		g.Consistently(p.picture, "5ms", "1ms").Should(BeIdenticalTo(last), "it waits")
		g.Eventually(now.Waiters, "5s", "1ms").Should(Equal(idle+2+round), "for this, and for when nothing changes, of which those of earlier rounds aren't taken back")
		now.Step(coalesce)
		g.Eventually(p.picture, "5s", "1ms").ShouldNot(BeIdenticalTo(last))
		last = p.picture()
	}
}
