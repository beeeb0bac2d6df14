package condition

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// ObserveSet takes in a set, what it may do, its stored breaker and the reset that its annotations ask for. It gives the
// nodes whose plans may have changed.
func (f *Fleet) ObserveSet(set *Set, state lifecycle.State, stored *limit.Opening, resetID string, at Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.declare(set.KeysDeclared)
	was := f.sets[set.UID]
	if stored != nil {
		delete(f.formers, set.Name) // what it left is written down
	}
	if was != nil && f.follows && was.breaker.Follow(stored) {
		f.recountAll(was)
		f.touch(was)
	}
	if was != nil && was.Generation == set.Generation && was.state == state && was.resetID == resetID {
		return nil
	}
	s := newSetState(set.under(f.policy.Types), state, stored, resetID)
	touched := names{}
	if was != nil {
		s.breaker = was.breaker // the leader's own is never older than the stored one, and a follower's is the stored one
		s.depart(was.Members, was.departed)
		maps.Copy(touched, was.matching)
		f.part(was)
	} else if stored == nil {
		f.inherit(s, at.Now)
	}
	f.sets[set.UID] = s
	f.introduce(s)
	f.judgeBreaker(s, at)
	f.touch(s)
	maps.Copy(touched, s.matching)
	maps.Copy(touched, s.recorded)
	maps.Copy(touched, s.tainted) // also by a former set of its name
	return touched.sorted()
}

// declare notes keys. Where a record can't be read, the taints of a new one count from now on.
func (f *Fleet) declare(keys []string) {
	news := false
	for _, key := range keys {
		news = news || !f.declared[key]
		f.declared[key] = true
	}
	if !news {
		return
	}
	for slot := range f.unreadable.all() {
		f.recount(f.index.slots[slot])
	}
}

func (f *Fleet) isDeclared(key string) bool { return f.declared[key] }

// ForgetSet removes a set that is gone, and gives the nodes that still carry its record.
func (f *Fleet) ForgetSet(uid types.UID, at Moment) (affected []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sets[uid]
	if s == nil {
		return nil
	}
	f.part(s)
	f.leave(s, at.Now)
	delete(f.sets, uid)
	delete(f.dirty, uid)
	return s.recorded.sorted()
}

// ConfirmOrphan says that a record's set was twice found to be gone; what the record holds is undone.
func (f *Fleet) ConfirmOrphan(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orphans[uid] = true
}

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
