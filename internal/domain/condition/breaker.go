package condition

import (
	"time"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

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
	matching, selected := f.wave(s, at.Now)
	wave := f.policy.Limits.Breaks(matching, selected)
	_, open := s.breaker.Opening()
	if wave && !open && !s.Observe { // one that only observes does nothing that could be stopped
		s.breaker.Open(limit.Opening{ID: at.Now.UTC().Format("20060102t150405z"), OpenedAt: at.Now, Turned: matching, Targets: selected})
		f.touch(s)
	}
	reset := s.breaker.ResetBy(s.resetID)
	if closed := !wave && s.breaker.Close(); reset || closed {
		f.touch(s)
	}
}

// wave is how many nodes match at once, of how many. A node that is deleted while it matches counts until EvictPace has passed: else whoever
// deletes sick nodes as fast as the reporter makes them would hide the wave.
func (f *Fleet) wave(s *setState, now time.Time) (matching, selected int) {
	s.departed.Forget(now.Add(-f.policy.Limits.EvictPace))
	gone := len(s.departed.Acts())
	return len(s.matching) + gone, s.selected + gone
}

func (s *setState) why() Reason {
	if s.breaker.Holds() {
		return HeldByBreaker
	}
	return ""
}
