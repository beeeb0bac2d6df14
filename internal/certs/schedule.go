package certs

import (
	"slices"
	"time"
)

// schedule says how long certificates live and when they are replaced: at two thirds of their life, which leaves a
// third for somebody to notice that rotation fails.
type schedule struct {
	caLife, leafLife time.Duration
	hosts            []string
}

// start begins anew: at once, or where others serve something else, with a CA to be trusted before it signs.
func (sc schedule) start(now time.Time, others bool) (state, error) {
	if !others {
		return sc.fresh(now)
	}
	next, err := newAuthority(now, sc.caLife)
	return state{next: &next}, err
}

// fresh starts from nothing.
func (sc schedule) fresh(now time.Time) (state, error) {
	ca, err := newAuthority(now, sc.caLife)
	if err != nil {
		return state{}, err
	}
	leaf, err := ca.issue(now, sc.leafLife, sc.hosts)
	return state{ca: ca, leaf: leaf}, err
}

// advance takes the one step that is due, and says which; "" when none is.
//
// A new CA comes in two steps, because API servers must trust it before the first replica serves a leaf that it signed:
// it is published as the next one, and signs only once that is settled, that is, once every API server must have seen it.
func (sc schedule) advance(s state, c circumstances) (state, string, error) {
	now := c.now
	s, dropped := s.withoutExpired(now)
	if s.unserved() || s.ca.expired(now) {
		return sc.resume(s, c)
	}
	switch {
	case s.next != nil && c.settled:
		return sc.promote(s, now)
	case s.next == nil && due(s.ca, now, sc.caLife):
		next, err := newAuthority(now, sc.caLife)
		s.next = &next
		return s, "made the next CA, to be trusted before it signs", err
	case due(s.leaf, now, sc.leafLife) && s.ca.cert.NotAfter.After(s.leaf.cert.NotAfter):
		leaf, err := s.ca.issue(now, sc.leafLife, sc.hosts)
		s.leaf = leaf
		return s, "renewed the serving certificate", err
	case !s.leaf.covers(sc.hosts):
		// The present hosts stay in until the next renewal: replicas of two versions would overwrite each other for ever.
		hosts := slices.Concat(sc.hosts, s.leaf.hosts())
		slices.Sort(hosts)
		leaf, err := s.ca.issue(now, sc.leafLife, slices.Compact(hosts))
		s.leaf = leaf
		return s, "renewed the serving certificate for further hosts", err
	case dropped:
		return s, "dropped expired CAs", nil
	}
	return s, "", nil
}

// resume goes on without a certificate that could be served.
func (sc schedule) resume(s state, c circumstances) (state, string, error) {
	switch {
	case s.next != nil && (c.settled || !c.others):
		return sc.promote(s, c.now)
	case s.next != nil:
		return state{next: s.next}, "", nil
	}
	s, err := sc.start(c.now, c.others)
	return s, "the CA has expired: started afresh", err
}

// promote lets the next CA sign. The one before stays trusted until it expires.
func (sc schedule) promote(s state, now time.Time) (state, string, error) {
	promoted := state{ca: *s.next, previous: s.previous}
	if !s.unserved() && !s.ca.expired(now) {
		promoted.previous = append(slices.Clone(s.previous), s.ca.cert)
	}
	var err error
	promoted.leaf, err = promoted.ca.issue(now, sc.leafLife, sc.hosts)
	return promoted, "the next CA is trusted and has signed a new serving certificate", err
}

// due says whether a certificate made for life is past two thirds of it.
func due(p keyPair, now time.Time, life time.Duration) bool {
	return !now.Before(p.cert.NotAfter.Add(-life / 3))
}
