package condition

import "time"

// OpenBreaker is a breaker that opened, kept until someone reset it and the wave that opened it is over.
type OpenBreaker struct {
	// ID names the transition; a reset must name it, so that a late reset can't close a later opening.
	ID       string
	OpenedAt time.Time
	Reset    bool
}

// judgeBreaker opens a set's breaker when more of its nodes match at once than can be believed. Only a reset lets it act
// again: falling numbers don't, because what comes back may be the same reporter.
//
// It counts every match, whether its reporter was heard of lately and whether `for` has passed or not. A breaker only
// forbids, so that the safe side is to count too many: conditions frozen at their worst by a reporter that died are the very
// thing that it is for, and if matches counted only once `for` passed, the first of a wave would be tainted before the
// last is counted.
func (f *Fleet) judgeBreaker(s *setState, at Moment) {
	if !f.synced || f.follows {
		return
	}
	defer func(was Reason) {
		if s.why() != was {
			f.recountAll(s)
		}
	}(s.why())
	wave := f.policy.Limits.Breaks(len(s.matching), s.selected)
	if wave && s.breaker == nil && !s.Observe { // one that only observes does nothing that could be stopped
		s.breaker = &OpenBreaker{ID: at.Now.UTC().Format("20060102t150405z"), OpenedAt: at.Now}
		f.touch(s)
	}
	if s.breaker == nil {
		return
	}
	if !s.breaker.Reset && s.resetID == s.breaker.ID {
		s.breaker = &OpenBreaker{ID: s.breaker.ID, OpenedAt: s.breaker.OpenedAt, Reset: true}
		f.touch(s)
	}
	if s.breaker.Reset && !wave {
		s.breaker = nil
		f.touch(s)
	}
}

func sameBreaker(a, b *OpenBreaker) bool {
	return a == b || a != nil && b != nil && a.ID == b.ID && a.Reset == b.Reset
}

func (s *setState) why() Reason {
	if s.breaker != nil && !s.breaker.Reset {
		return HeldByBreaker
	}
	return ""
}
