package probe

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Target is a namespace that a config probes.
type Target struct {
	Config    types.UID
	Namespace string
}

const (
	// togetherWithin is how close targets turn unhealthy for one cause to be likely.
	togetherWithin = 2 * time.Minute
	// raisePace and raiseWindow: so many targets begin to be scaled up in such a time, over all configs.
	raisePace   = 10
	raiseWindow = time.Minute
)

// Fleet is all targets of all configs: what counts for the cap, the pace and the breakers. It is safe for concurrent use.
type Fleet struct {
	mu       sync.Mutex
	limits   limit.Limits
	members  map[Target]*member
	breakers map[types.UID]Breaker
	// raised are when targets began to be scaled up, the oldest first.
	raised []time.Time
	// actsFrom is until when nothing is scaled down: our clock stepped.
	actsFrom time.Time
}

// member is what the fleet knows of a target.
type member struct {
	probed bool
	// unread: nobody knows yet whether anything of it is scaled down, so it counts as if.
	unread bool
	// turned is when it turned unhealthy, zero when it isn't or when that is no news.
	turned time.Time
	// down: something of it is scaled down, or about to be. rising: it began to be scaled up.
	down, rising bool
}

// Breaker is open for a config of whose targets too many turned unhealthy together with others.
type Breaker struct {
	// ID names the opening; a reset must name it, so that a late one can't close a later opening.
	ID       string
	OpenedAt time.Time
	// Turned of Probed targets, over all configs, turned unhealthy together.
	Turned, Probed int
}

// NewFleet is a fleet without targets.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{limits: limits, members: map[Target]*member{}, breakers: map[types.UID]Breaker{}}
}

// SetLimits takes over limits that changed. What is down stays down.
func (f *Fleet) SetLimits(limits limit.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = limits
}

// HoldActsUntil lets nothing be scaled down before t: our clock stepped, and every decision with it.
func (f *Fleet) HoldActsUntil(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.After(f.actsFrom) {
		f.actsFrom = t
	}
}

// Expect takes in a target of whose objects nothing is known yet. Until ObserveDown it counts as one that is scaled down:
// a manager that takes over must not begin with a cap that is already used.
func (f *Fleet) Expect(t Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[t] == nil {
		f.members[t] = &member{unread: true}
	}
}

func (f *Fleet) member(t Target) *member {
	if f.members[t] == nil {
		f.members[t] = &member{}
	}
	return f.members[t]
}

// Observe takes in what a target's latest run added up to, and gives the configs whose breaker opens for it.
func (f *Fleet) Observe(t Target, s *State, now time.Time) (opened []types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(t)
	m.probed = true
	unhealthy := !s.UnhealthySince.IsZero()
	switch {
	case !unhealthy:
		m.turned = time.Time{}
	case s.UnhealthySince.Equal(s.At) && !m.down: // what was down before a restart doesn't turn now
		m.turned = s.At
		return f.judgeBreakers(now)
	}
	return nil
}

// judgeBreakers opens the breakers of all configs that take part in a wave.
func (f *Fleet) judgeBreakers(now time.Time) (opened []types.UID) {
	turned, of := 0, map[types.UID]bool{}
	for t, m := range f.members {
		if !m.turned.IsZero() && now.Sub(m.turned) <= togetherWithin {
			turned++
			of[t.Config] = true
		}
	}
	probed, _ := f.counts()
	if !f.limits.Suspects(turned, probed) {
		return nil
	}
	for config := range of {
		if _, open := f.breakers[config]; !open {
			f.breakers[config] = Breaker{ID: strings.ToLower(now.UTC().Format("20060102T150405Z")), OpenedAt: now, Turned: turned, Probed: probed}
			opened = append(opened, config)
		}
	}
	slices.Sort(opened)
	return opened
}

// ObserveDown takes in whether a target's objects have records of ours.
func (f *Fleet) ObserveDown(t Target, down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(t)
	m.down, m.unread = down, false
	m.rising = m.rising && down
}

// Unprobed takes in that a target isn't probed any more, or not now: it is hibernated, or its Secrets can't be used. What
// is down still counts.
func (f *Fleet) Unprobed(t Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(t)
	m.probed, m.turned = false, time.Time{}
}

// Forget removes a target that is gone, with nothing down.
func (f *Fleet) Forget(t Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, t)
}

// ForgetConfig removes a config that is gone, with all its targets.
func (f *Fleet) ForgetConfig(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.breakers, uid)
	for t := range f.members {
		if t.Config == uid {
			delete(f.members, t)
		}
	}
}

// Breaker of a config; ok is false when it is closed.
func (f *Fleet) Breaker(uid types.UID) (b Breaker, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok = f.breakers[uid]
	return b, ok
}

// RestoreBreaker takes over one that another process opened, as the status tells. It only forbids.
func (f *Fleet) RestoreBreaker(uid types.UID, b Breaker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, open := f.breakers[uid]; !open {
		f.breakers[uid] = b
	}
}

// Reset closes the config's breaker of this ID: someone looked, and the targets that turned unhealthy are to be believed.
func (f *Fleet) Reset(uid types.UID, id string) (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, open := f.breakers[uid]; !open || b.ID != id {
		return false
	}
	delete(f.breakers, uid)
	for t, m := range f.members {
		if t.Config == uid {
			m.turned = time.Time{}
		}
	}
	return true
}

// Counts are of the targets that are probed, and of all that are scaled down.
func (f *Fleet) Counts() (probed, scaledDown int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts()
}

func (f *Fleet) counts() (probed, scaledDown int) {
	for _, m := range f.members {
		if m.probed {
			probed++
		}
		if m.down {
			scaledDown++
		}
	}
	return probed, scaledDown
}
