package condition

import corev1 "k8s.io/api/core/v1"

// early is a set that matches the node, and whose `for` isn't over yet.
type early struct {
	Claimant
	match Match
}

// takeOver has a set that is early keep the taint of its key that others give up: the node is sick by another set's word, and pods that
// came in between would be in the way. It evicts nobody before its own `for` is over, and raises nothing.
func (p *planner) takeOver() {
	for _, e := range p.early {
		was := p.Node.Owned.Effect(e.Key)
		if p.effectNext(e.Key) != "" || !p.mayOwn(e.Key) || !p.Node.hasTaint(e.Key, was) {
			continue
		}
		claim := p.claim(e.Claimant)
		want, _ := e.effectFor(claim, p.At.Now)
		p.taintFirst(e.Claimant, claim, lower(lower(want, was), corev1.TaintEffectNoSchedule), e.match)
	}
}

func lower(a, b corev1.TaintEffect) corev1.TaintEffect {
	if rank[a] <= rank[b] {
		return a
	}
	return b
}
