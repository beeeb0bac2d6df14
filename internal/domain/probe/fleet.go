package probe

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// TargetKey names a target: a namespace that a config probes.
type TargetKey struct {
	Config    types.UID
	Namespace string
}

const (
	// maxScaleUpStarts is how many targets begin to be scaled up in a Timings.ScaleUpWindow, over all configs.
	maxScaleUpStarts = 10
	// yieldRetry is how long a target lets others go first before it asks again.
	yieldRetry = time.Second
)

// Fleet is all targets of all configs: what counts for the cap, the pace and the breaker. Only targets that were added (Add)
// count, until they are forgotten: events of others come late, from runs that were still going on. It is safe for
// concurrent use.
type Fleet struct {
	// Timings say how fast targets may be scaled up. The zero value is production's.
	Timings timing.Timings
	// Complete says whether all targets that there are were added; else some may be unhealthy of which nothing is known. Default: they are.
	Complete func() bool

	mu      sync.Mutex
	limits  limit.Limits
	members map[TargetKey]*member
	// all counts every member, tenants those of tenants, and tenant those of each tenant, by namespace.
	all, tenants tally
	tenant       map[string]tally
	// votes has the namespaces of the acting members, with how many each has. A namespace has one vote on the breaker, however
	// many configs probe it. unrecovered has those of the members that are so.
	votes, unrecovered namespaceCounts
	breaker            limit.Breaker
	// openedHere: this process opened the breaker. recoveredSince is since when few are unrecovered while it is open; zero while many are.
	openedHere     bool
	recoveredSince time.Time
	// scaleUps are the targets that began to be scaled up lately, the oldest first.
	scaleUps []scaleUpStart
	// suspendedUntil is until when nothing is scaled down: our clock stepped.
	suspendedUntil time.Time
}

// member is what the fleet knows of a target.
type member struct {
	namespace string
	// tenant: the config is of the namespace that it probes, and that isn't Autohealer's own.
	tenant bool
	probed bool
	// exempt: it isn't expected to be healthy. healthy: by runs that aren't stale. vouched: witnesses vouch for
	// its failures.
	exempt, healthy, vouched bool
	// active: its config is in force, so that it counts in the limits and in the breaker.
	active bool
	// unknown: it isn't known yet whether a dependent is scaled down, so it counts as scaled down.
	unknown bool
	// down: something of it is scaled down, or about to be. scalingUp: it began to be scaled up. waitingSince is when it last
	// requested that and had to wait; zero when it doesn't.
	down, scalingUp bool
	waitingSince    time.Time
	// turned: it turned unhealthy and is so still, and no reset of the breaker has trusted that.
	turned bool
	// lastHealthy is when its external side was last seen to work, and firstFailed when it was first seen to fail since; zero while it
	// works. The cause came in between.
	lastHealthy, firstFailed time.Time
}

// counts: its config is in force, and it is probed, too.
func (m *member) counts() bool { return m.active && m.probed }

// unrecovered: it isn't known to be healthy, nor vouched for, and should be.
func (m *member) unrecovered() bool { return !m.exempt && !m.healthy && !m.vouched }

// NewFleet is a fleet without targets.
func NewFleet(limits limit.Limits) *Fleet {
	return &Fleet{limits: limits, members: map[TargetKey]*member{}, votes: namespaceCounts{}, unrecovered: namespaceCounts{}, tenant: map[string]tally{}}
}

// SetLimits takes over limits that changed. What is down stays down.
func (f *Fleet) SetLimits(limits limit.Limits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = limits
}

// SuspendScaleDown lets nothing be scaled down before t: our clock stepped, and every decision with it.
func (f *Fleet) SuspendScaleDown(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.After(f.suspendedUntil) {
		f.suspendedUntil = t
	}
}

// Add takes in a target of whose objects nothing is known yet. Until ObserveDown it counts as one that is scaled down:
// a manager that takes over must not begin with a cap that is already used. One of a tenant's config gets places under the cap from
// its own share only. It says whether the target is new.
func (f *Fleet) Add(t TargetKey, tenant bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[t] != nil {
		return false
	}
	m := &member{namespace: t.Namespace, tenant: tenant, unknown: true}
	f.members[t] = m
	f.count(m, 1)
	return true
}

// change has a member changed, and all that is counted follow. It gives the member, nil where there is none. It needs f.mu.
func (f *Fleet) change(t TargetKey, by func(m *member)) *member {
	m := f.members[t]
	if m != nil {
		f.count(m, -1)
		by(m)
		f.count(m, 1)
	}
	return m
}

// count adds a member to all that is counted, or takes it away.
func (f *Fleet) count(m *member, by int) {
	f.all.add(m, by)
	if m.tenant {
		f.tenants.add(m, by)
		own := f.tenant[m.namespace]
		own.add(m, by)
		if f.tenant[m.namespace] = own; own == (tally{}) {
			delete(f.tenant, m.namespace)
		}
	}
	if m.counts() {
		f.votes.add(m.namespace, by)
	}
	if m.unrecovered() {
		f.unrecovered.add(m.namespace, by)
	}
}

// namespaceCounts counts members by namespace.
type namespaceCounts map[string]int

func (c namespaceCounts) add(namespace string, by int) {
	if c[namespace] += by; c[namespace] == 0 {
		delete(c, namespace)
	}
}

// SetActive takes in whether a target's config is in force: admitted, and not only observing. Only then does the target count for
// others, in the breaker and in what the cap is a share of: whoever could make them count without risking their own
// dependents could stop or unleash everybody's. It says whether the breaker opened for it.
func (f *Fleet) SetActive(t TargetKey, acts bool, now time.Time) (opened bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := false
	m := f.change(t, func(m *member) { before, m.active = m.active, acts })
	return m != nil && before != acts && m.turned && f.openIfCorrelated(m, now)
}

// SetExempt takes in whether nobody expects a target to be healthy: it is hibernated, its config only observes or doesn't select it any more, or its
// kubeconfig has never worked. Another one that isn't healthy keeps the breaker open, for whatever reason it isn't probed.
func (f *Fleet) SetExempt(t TargetKey, excused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(t, func(m *member) { m.exempt = excused })
}

// ObserveRun takes in what a target's latest run added up to, and says whether the breaker opened or closed for it.
func (f *Fleet) ObserveRun(t TargetKey, s *State, now time.Time) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lostVouch := false
	m := f.change(t, func(m *member) {
		lostVouch = m.vouched && !s.Vouched
		m.probed, m.healthy, m.vouched = true, s.Recovered, s.Vouched
	})
	if m == nil {
		return false
	}
	m.recordOutage(s)
	switch {
	case s.UnhealthySince.IsZero():
		m.turned = false
	case s.UnhealthySince.Equal(s.At) && !m.down: // what was down before a restart doesn't turn now
		m.turned = true
		return f.openIfCorrelated(m, now)
	case lostVouch && m.turned:
		return f.openIfCorrelated(m, now)
	}
	return f.closeOnceRecovered(now)
}

// recordOutage keeps between which two runs the outer side broke.
func (m *member) recordOutage(s *State) {
	switch {
	case s.External.Errors == 0 && s.Leases.Errors == 0:
		if m.firstFailed = (time.Time{}); s.External.Successes > 0 {
			m.lastHealthy = s.External.CountedAt
		}
	case m.firstFailed.IsZero():
		m.firstFailed = s.At
		if m.lastHealthy.IsZero() { // never seen to work: a run earlier it might have
			m.lastHealthy = s.At.Add(-max(0, s.NextRun.Sub(s.At)))
		}
	}
}

// ObserveDown takes in whether a target's objects have records of ours.
func (f *Fleet) ObserveDown(t TargetKey, down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(t, func(m *member) { m.unknown, m.down, m.scalingUp = false, down, m.scalingUp && down })
}

// ObserveUnprobed takes in that a target isn't probed any more, or not now: it is hibernated, or its Secrets can't be used. What
// is down still counts.
func (f *Fleet) ObserveUnprobed(t TargetKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(t, func(m *member) {
		m.probed, m.healthy, m.vouched, m.turned = false, false, false, false
		m.lastHealthy, m.firstFailed = time.Time{}, time.Time{}
	})
}

// Forget removes a target that is gone, with nothing down.
func (f *Fleet) Forget(t TargetKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(t)
}

// forget needs f.mu. When nobody is left the breaker has nothing to be about.
func (f *Fleet) forget(t TargetKey) {
	m := f.members[t]
	if m == nil {
		return
	}
	f.count(m, -1)
	delete(f.members, t)
	if len(f.members) == 0 {
		f.breaker = limit.Breaker{}
	}
}

// ForgetConfig removes a config that is gone, with all its targets.
func (f *Fleet) ForgetConfig(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.members {
		if t.Config == uid {
			f.forget(t)
		}
	}
}

// Counts are of the targets that are probed, and of all that are scaled down.
func (f *Fleet) Counts() (probed, scaledDown int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all.probed, f.all.down
}
