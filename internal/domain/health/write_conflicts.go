package health

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// WriteConflicts keeps conditions from being written by turns without end, where others write them, too: ours is put right at once, and then less and
// less. The zero value knows of none, and is ready. It is safe for concurrent use.
type WriteConflicts struct {
	mu       sync.Mutex
	byTarget map[string]targetWrites // by target; needs mu
}

// targetWrites is what was written to a target of that UID, by condition type.
type targetWrites struct {
	uid    types.UID
	byType map[string]conditionWrite
}

// conditionWrite is about one condition of a target.
type conditionWrite struct {
	// hash tells what was written last, with this status, at that time.
	hash   uint64
	status Status
	at     time.Time
	// rounds is how often in a row something else was there by then.
	rounds int
}

const (
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// minReported is for how long a write conflict is reported at least: others write every half minute, or so.
	minReported = 2 * time.Minute
)

func (c conditionWrite) backoff() time.Duration {
	if c.rounds == 0 {
		return 0
	}
	return min(minBackoff<<min(c.rounds-1, 20), maxBackoff)
}

// Check is asked at each evaluation, also where nothing is to be written. It says of a condition that is to be written in the place of what was found whether that rewrites what we had written already, with the same
// status, and somebody else replaced; and until when it isn't to be written therefore, zero when it may be now. Nil is none, on either side.
func (c *WriteConflicts) Check(target string, uid types.UID, conditionType string, found, next *Condition, now time.Time) (rewrites bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.last(target, uid, conditionType)
	switch is := found.hash(); {
	case !known || last.hash == is:
		return false, time.Time{}
	case is == next.hash(): // whoever wrote it, an answer to us may have been lost
		c.byTarget[target].byType[conditionType] = conditionWrite{hash: is, status: found.status(), at: now}
		return false, time.Time{}
	case last.status != next.status():
		return false, time.Time{}
	}
	if until = last.at.Add(last.backoff()); now.Before(until) {
		return true, until
	}
	return true, time.Time{}
}

// last needs c.mu.
func (c *WriteConflicts) last(target string, uid types.UID, conditionType string) (last conditionWrite, known bool) {
	if of := c.byTarget[target]; of.uid == uid {
		last, known = of.byType[conditionType]
	}
	return last, known
}

// RecordWrite takes in a condition that was written in the place of what was found, and says whether somebody else had written that. Nil is none.
func (c *WriteConflicts) RecordWrite(target string, uid types.UID, conditionType string, found, next *Condition, now time.Time) (contested bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := conditionWrite{hash: next.hash(), status: next.status(), at: now}
	if before, known := c.last(target, uid, conditionType); known && before.hash != found.hash() {
		after.rounds = before.rounds + 1
	}
	if c.byTarget == nil {
		c.byTarget = map[string]targetWrites{}
	}
	if of := c.byTarget[target]; of.byType == nil || of.uid != uid {
		c.byTarget[target] = targetWrites{uid, map[string]conditionWrite{}}
	}
	c.byTarget[target].byType[conditionType] = after
	return after.rounds > 0
}

// Persistent gives a condition type of the target that somebody else writes again and again, the first by name, and until when that counts if
// nothing is written from now on; "" where there is none.
func (c *WriteConflicts) Persistent(target string, uid types.UID, now time.Time) (conditionType string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.byTarget[target]
	if of.uid != uid {
		return "", time.Time{}
	}
	for _, conditionType := range slices.Sorted(maps.Keys(of.byType)) {
		last := of.byType[conditionType]
		if until := last.at.Add(max(2*last.backoff(), minReported)); last.rounds > 1 && now.Before(until) {
			return conditionType, until
		}
	}
	return "", time.Time{}
}

// Forget a target that is gone.
func (c *WriteConflicts) Forget(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byTarget, target)
}

var seed = maphash.MakeSeed()

// hash of what a condition says.
func (c *Condition) hash() uint64 {
	if c == nil {
		return 0
	}
	return maphash.String(seed, strings.Join(append([]string{string(c.Status), c.Reason, c.Message}, c.Codes...), "\x00"))
}
