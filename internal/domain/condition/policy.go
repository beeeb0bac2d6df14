package condition

import (
	"maps"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Policy is what the cluster's operators lay down for all sets. The zero value has no limit that lets anything through.
type Policy struct {
	Limits limit.Limits
	// Precedence says among which sets of a node the highest effect wins; "" means Key.
	Precedence Precedence
	// Paused is why no set does anything new, as holds tell it; "" when they may. What stopped matching is undone all the same.
	Paused string
	// Frozen: nothing is undone, either. Paused says why.
	Frozen bool
	// Types are the node condition types whose meaning is known.
	Types ecosystem.Registry
}

// SetPolicy replaces the policy in force and gives the nodes whose plans may differ under it. A limit that shrinks undoes
// nothing; one that grows lets the longest-waiting nodes go on, and each of them the next. Sets may read Leases
// from now on: ask UsesLease.
func (f *Fleet) SetPolicy(p Policy, at Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Precedence == "" {
		p.Precedence = PrecedenceKey
	}
	was := f.policy
	f.policy = p
	look := names{}
	if !p.Types.Equal(was.Types) {
		f.readTypesAnew(look)
	}
	if p.Limits != was.Limits {
		for _, s := range f.sets {
			f.judgeBreaker(s, at)
		}
		for _, name := range f.queues.heads() {
			look.put(name, true)
		}
	}
	if p.Precedence != was.Precedence || p.Paused != was.Paused || p.Frozen != was.Frozen {
		f.lookAtAll(look, was.Frozen)
	}
	return look.sorted()
}

// lookAtAll adds the nodes that some set has to do with and, after a freeze, those with a record of sets that nobody knows.
func (f *Fleet) lookAtAll(look names, wasFrozen bool) {
	for name, n := range f.nodes {
		if len(n.sets) > 0 || wasFrozen && n.recorded {
			look.put(name, true)
		}
	}
}

// Limits are those in force.
func (f *Fleet) Limits() limit.Limits {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.policy.Limits
}

// readTypesAnew lets the sets read their members' types by the registry in force, and adds the nodes that this concerns.
func (f *Fleet) readTypesAnew(look names) {
	for _, s := range f.sets {
		set := s.under(f.policy.Types)
		if set == s.Set {
			continue
		}
		f.setsBy.remove(s)
		s.Set = set
		f.setsBy.add(s)
		f.touch(s)
		maps.Copy(look, s.matching)
		maps.Copy(look, s.tainted)
	}
}
