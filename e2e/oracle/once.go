package oracle

import (
	"cmp"
	"slices"
	"time"
)

// stamp is an event that can give reason to act.
type stamp struct {
	version uint64
	at      time.Time
}

// ledger counts reasons against acts: each act uses one up, and one isn't used twice. The manager may be behind by lag,
// so an act may be for any reason of that time; older ones it must have seen, so an act is for the latest of them and the
// others are void.
type ledger struct {
	lag  time.Duration
	used map[string]uint64 // version of the last reason used up or void, plus one
}

// use finds a reason for an act and uses it up; reasons come in order.
func (l *ledger) use(act string, reasons []stamp, now stamp) bool {
	left := slices.DeleteFunc(slices.Clone(reasons), func(s stamp) bool {
		return s.version < l.used[act] || s.version >= now.version
	})
	if len(left) == 0 {
		return false
	}
	recent := slices.IndexFunc(left, func(s stamp) bool { return now.at.Sub(s.at) <= l.lag })
	if recent < 0 {
		recent = len(left) - 1
	}
	l.used[act] = left[recent].version + 1
	return true
}

func byVersion(a, b stamp) int { return cmp.Compare(a.version, b.version) }
