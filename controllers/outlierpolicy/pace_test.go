package outlierpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestWhatChangesAtOnceIsTranslatedTogether(t *testing.T) {
	g := NewWithT(t)
	p, now := newTestPublisher(t, nil)
	store := &objectStore{}
	p.Clusters.Current, p.Informers = confirmed{}, store.followed(t.Context(), t)
	p.Guard.SetGuardrails(nil)
	idle := now.Waiters()
	go p.publishLoop(t.Context())
	g.Eventually(p.snapshot, "5s", "1ms").ShouldNot(BeNil(), "the first goes at once")
	last := p.snapshot()
	for round := range 20 {
		for range 20 {
			p.requestTranslation()
		}
		g.Eventually(func() int { return len(p.pendingTranslation) }, "5s", "1ms").Should(Equal(1))
		g.Consistently(p.snapshot, "5ms", "1ms").Should(BeIdenticalTo(last), "it waits")
		g.Eventually(now.Waiters, "5s", "1ms").Should(Equal(idle+2+round), "for this, and for when nothing changes, of which those of earlier rounds aren't taken back")
		now.Step(minInterval)
		g.Eventually(p.snapshot, "5s", "1ms").ShouldNot(BeIdenticalTo(last))
		last = p.snapshot()
	}
}
