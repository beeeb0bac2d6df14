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

// Contests keeps conditions from being written by turns without end, where others write them, too: ours is put right at once, and then less and
// less. The zero value knows of none, and is ready. It is safe for concurrent use.
type Contests struct {
	mu sync.Mutex
	of map[string]written // by target; needs mu
}

// written is what was written to a target of that UID, by condition type.
type written struct {
	uid types.UID
	by  map[string]contest
}

// contest is about one condition of a target.
type contest struct {
	// wrote tells what was written last, with this status, at that time.
	wrote  uint64
	status Status
	at     time.Time
	// rounds is how often in a row something else was there by then.
	rounds int
}

const (
	firstPause = time.Second
	longPause  = 5 * time.Minute
	// leastReported is for how long a contest is reported at least: others write every half minute, or so.
	leastReported = 2 * time.Minute
)

func (c contest) pause() time.Duration {
	if c.rounds == 0 {
		return 0
	}
	return min(firstPause<<min(c.rounds-1, 20), longPause)
}

// Ask is asked at each look, also where nothing is to be written. It says of a condition that is to be written in the place of what was found whether that rewrites what we had written already, with the same
// status, and somebody else replaced; and until when it isn't to be written therefore, zero when it may be now. Nil is none, on either side.
func (c *Contests) Ask(target string, uid types.UID, conditionType string, found, next *Condition, now time.Time) (rewrites bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.last(target, uid, conditionType)
	switch is := found.hash(); {
	case !known || last.wrote == is:
		return false, time.Time{}
	case is == next.hash(): // whoever wrote it, an answer to us may have been lost
		c.of[target].by[conditionType] = contest{wrote: is, status: found.status(), at: now}
		return false, time.Time{}
	case last.status != next.status():
		return false, time.Time{}
	}
	if until = last.at.Add(last.pause()); now.Before(until) {
		return true, until
	}
	return true, time.Time{}
}

// last needs c.mu.
func (c *Contests) last(target string, uid types.UID, conditionType string) (last contest, known bool) {
	if of := c.of[target]; of.uid == uid {
		last, known = of.by[conditionType]
	}
	return last, known
}

// Wrote takes in a condition that was written in the place of what was found, and says whether somebody else had written that. Nil is none.
func (c *Contests) Wrote(target string, uid types.UID, conditionType string, found, next *Condition, now time.Time) (contested bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := contest{wrote: next.hash(), status: next.status(), at: now}
	if before, known := c.last(target, uid, conditionType); known && before.wrote != found.hash() {
		after.rounds = before.rounds + 1
	}
	if c.of == nil {
		c.of = map[string]written{}
	}
	if of := c.of[target]; of.by == nil || of.uid != uid {
		c.of[target] = written{uid, map[string]contest{}}
	}
	c.of[target].by[conditionType] = after
	return after.rounds > 0
}

// Contested gives a condition type of the target that somebody else writes again and again, the first by name, and until when that counts if
// nothing is written from now on; "" where there is none.
func (c *Contests) Contested(target string, uid types.UID, now time.Time) (conditionType string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[target]
	if of.uid != uid {
		return "", time.Time{}
	}
	for _, conditionType := range slices.Sorted(maps.Keys(of.by)) {
		last := of.by[conditionType]
		if until := last.at.Add(max(2*last.pause(), leastReported)); last.rounds > 1 && now.Before(until) {
			return conditionType, until
		}
	}
	return "", time.Time{}
}

// Forget a target that is gone.
func (c *Contests) Forget(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, target)
}

var seed = maphash.MakeSeed()

// hash of what a condition says.
func (c *Condition) hash() uint64 {
	if c == nil {
		return 0
	}
	return maphash.String(seed, strings.Join(append([]string{string(c.Status), c.Reason, c.Message}, c.Codes...), "\x00"))
}
