package probe

import (
	"fmt"
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
}

// member is what the fleet knows of a target.
type member struct {
	probed bool
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
	m.down = down
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

// Permit says whether a target may be scaled now.
type Permit struct {
	Allowed bool
	// Reason and Message of a refusal.
	Reason  Reason
	Message string
	// LookAgain is when it may be allowed without any event; zero when that isn't known.
	LookAgain time.Time
}

// Reasons for which a target isn't scaled.
const (
	HeldByBreaker Reason = "ProbeSuspect"
	HeldByLimit   Reason = "TooManyScaledDown"
	HeldByPace    Reason = "ScaleUpPaced"
)

// PermitDown asks for a target to be scaled down and takes its place under the cap: until ObserveDown says that nothing is
// down. A target that has its place keeps it, so that a flow that began is completed; but not through a breaker.
func (f *Fleet) PermitDown(t Target) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, open := f.breakers[t.Config]; open {
		return Permit{Reason: HeldByBreaker, Message: fmt.Sprintf("%d of %d targets turned unhealthy together at %s; look whether the cause is on this side, then reset breaker %s",
			b.Turned, b.Probed, b.OpenedAt.UTC().Format(time.RFC3339), b.ID)}
	}
	m := f.member(t)
	if m.down {
		m.rising = false
		return Permit{Allowed: true}
	}
	probed, down := f.counts()
	if most := f.limits.ScaledDownTargets(probed); down >= most {
		return Permit{Reason: HeldByLimit, Message: fmt.Sprintf("%d of %d targets are scaled down, and maxScaledDownTargets %s allows %d", down, probed, f.limits.MaxScaledDownTargets, most)}
	}
	m.down, m.rising = true, false
	return Permit{Allowed: true}
}

// PermitUp asks for a target to be scaled up. That is only paced: once begun it goes on.
func (f *Fleet) PermitUp(t Target, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.member(t)
	if m.rising || !m.down {
		return Permit{Allowed: true}
	}
	f.raised = slices.DeleteFunc(f.raised, func(at time.Time) bool { return now.Sub(at) >= raiseWindow })
	if len(f.raised) >= raisePace {
		return Permit{Reason: HeldByPace, LookAgain: f.raised[0].Add(raiseWindow),
			Message: fmt.Sprintf("%d targets began to be scaled up in the last %s", len(f.raised), raiseWindow)}
	}
	f.raised = append(f.raised, now)
	m.rising = true
	return Permit{Allowed: true}
}
