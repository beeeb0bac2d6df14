package probe

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Permit says whether a target may be scaled now.
type Permit struct {
	Allowed bool
	// Reason and Message of a refusal.
	Reason  Reason
	Message string
	// RequeueAt is when it may be allowed without any event; zero when that isn't known.
	RequeueAt time.Time
}

// Reasons for which a target isn't scaled.
const (
	HeldByBreaker         Reason = "TooManyFailTogether"
	HeldByLimit           Reason = "TooManyScaledDown"
	HeldByPace            Reason = "ScaleUpPaced"
	HeldByClock           Reason = "ClockStepped"
	HeldTargetGone        Reason = "TargetGone"
	HeldUntriedKubeconfig Reason = "KubeconfigUntried"
)

// AcquireScaleDown asks for a target to be scaled down and takes its place under the cap: until ObserveDown says that nothing is
// down. A target that has its place keeps it, so that a flow that began is completed; but not through a breaker.
func (f *Fleet) AcquireScaleDown(t TargetKey, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.canScaleDown(t, now)
	if p.Allowed {
		f.change(t, func(m *member) { m.down, m.scalingUp = true, false })
	}
	return p
}

// CanScaleDown says whether a target may be scaled down by what is known of it alone.
func (t *Target) CanScaleDown() Permit {
	if !t.KubeconfigProven() {
		return Permit{Reason: HeldUntriedKubeconfig, Message: "the external kubeconfig, in Secret " + t.Config.ExternalSecret + ", has never worked since it was written"}
	}
	return Permit{Allowed: true}
}

// CanScaleDown says what AcquireScaleDown would, and takes no place.
func (f *Fleet) CanScaleDown(t TargetKey, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.canScaleDown(t, now)
}

// canScaleDown needs f.mu.
func (f *Fleet) canScaleDown(t TargetKey, now time.Time) Permit {
	if now.Before(f.suspendedUntil) {
		return Permit{Reason: HeldByClock, RequeueAt: f.suspendedUntil, Message: "the manager's clock stepped; nothing is scaled down until " + f.suspendedUntil.UTC().Format(time.RFC3339)}
	}
	m := f.members[t]
	if open, ok := f.breaker.Opening(); ok && (m == nil || !m.vouched) {
		return Permit{Reason: HeldByBreaker, Message: breakerMessage(open)}
	}
	if m == nil {
		return Permit{Reason: HeldTargetGone, Message: "the ProbeConfig or the namespace is gone"}
	}
	if full := f.capReached(m); full != "" && !m.down {
		return Permit{Reason: HeldByLimit, Message: full}
	}
	return Permit{Allowed: true}
}

func breakerMessage(b limit.Opening) string {
	many := "too many targets"
	if b.Targets > 0 {
		many = fmt.Sprintf("%d of %d probed namespaces", b.Turned, b.Targets)
	}
	return fmt.Sprintf("%s turned unhealthy together at %s; nothing is scaled down before most of them are healthy again or breaker %s is reset; see BreakerOpen", many, b.OpenedAt.UTC().Format(time.RFC3339), b.ID)
}

// AcquireScaleUp asks for a target to be scaled up. That is only paced: once begun it goes on.
func (f *Fleet) AcquireScaleUp(t TargetKey, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[t]
	if m == nil || m.scalingUp || !m.down { // what is gone from the fleet may still have to be given back
		return Permit{Allowed: true}
	}
	f.scaleUps = slices.DeleteFunc(f.scaleUps, func(r scaleUpStart) bool { return now.Sub(r.at) >= f.Timings.ScaleUpWindow() })
	if len(f.scaleUps) >= maxScaleUpStarts {
		m.waitingSince = now
		return Permit{Reason: HeldByPace, RequeueAt: f.scaleUps[0].at.Add(f.Timings.ScaleUpWindow()),
			Message: fmt.Sprintf("%d targets began to be scaled up in the last %s", len(f.scaleUps), f.Timings.ScaleUpWindow())}
	}
	if f.mustYield(t, now) {
		m.waitingSince = now
		return Permit{Reason: HeldByPace, RequeueAt: now.Add(yieldRetry), Message: "another target of this namespace began to be scaled up lately, and those of others wait"}
	}
	f.scaleUps = append(f.scaleUps, scaleUpStart{namespace: t.Namespace, at: now})
	m.scalingUp, m.waitingSince = true, time.Time{}
	return Permit{Allowed: true}
}

// scaleUpStart is a target that began to be scaled up.
type scaleUpStart struct {
	namespace string
	at        time.Time
}

// mustYield says whether a target lets others go first: its namespace had a turn lately, and one that had none waits. Whoever lets
// many targets of one namespace come and go would otherwise keep everybody's down. Who didn't ask again when a turn was free
// waits no more. It needs f.mu.
func (f *Fleet) mustYield(t TargetKey, now time.Time) bool {
	had := sets.New[string]()
	for _, r := range f.scaleUps {
		had.Insert(r.namespace)
	}
	if !had.Has(t.Namespace) {
		return false
	}
	for _, other := range f.members {
		if now.Sub(other.waitingSince) <= f.Timings.ScaleUpWindow()+yieldRetry && !had.Has(other.namespace) {
			return true
		}
	}
	return false
}

// tally counts members: those that are probed, that are probed and in force, of which something is scaled down, and of which
// that isn't known.
type tally struct{ probed, counted, down, unknown int }

func (t *tally) add(m *member, by int) {
	for _, c := range []struct {
		counts bool
		of     *int
	}{{m.probed, &t.probed}, {m.counts(), &t.counted}, {m.down, &t.down}, {m.unknown, &t.unknown}} {
		if c.counts {
			*c.of += by
		}
	}
}

// capReached says why a member that isn't down must not be scaled down, "" when it may. It needs f.mu.
//
// The cap is shared: whoever runs a probed server can make it fail, and with many targets would otherwise use up the places of
// all. Tenants leave those in Autohealer's own namespace their part, by their numbers, and a tenant leaves other tenants
// theirs, but each has one place.
func (f *Fleet) capReached(m *member) string {
	most, limit := f.limits.ScaledDownTargets(f.all.counted), f.limits.MaxScaledDownTargets
	if f.all.used(m) >= most {
		return f.all.explain(m, fmt.Sprintf("%d of %d targets are scaled down, and maxScaledDownTargets %s allows %d", f.all.down, f.all.counted, limit, most))
	}
	if !m.tenant {
		return ""
	}
	own := f.tenant[m.namespace]
	if share := max(1, proportion(most, own.counted, f.all.counted)); own.used(m) >= share {
		return own.explain(m, fmt.Sprintf("%d of %d targets of namespace %s are scaled down, and its share of maxScaledDownTargets %s is %d", own.down, own.counted, m.namespace, limit, share))
	}
	if share := max(1, most-proportion(most, f.all.counted-f.tenants.counted, f.all.counted)); f.tenants.used(m) >= share {
		return f.tenants.explain(m, fmt.Sprintf("%d of %d targets of tenants are scaled down, and maxScaledDownTargets %s allows them %d", f.tenants.down, f.tenants.counted, limit, share))
	}
	return ""
}

// proportion of a whole that some of all have, rounded down.
func proportion(whole, some, all int) int {
	if all == 0 {
		return 0
	}
	return whole * some / all
}

// used are the places that others than the member have, or may have.
func (t *tally) used(m *member) int { return t.down + t.unknownBeside(m) }

func (t *tally) unknownBeside(m *member) int {
	if m.unknown {
		return t.unknown - 1
	}
	return t.unknown
}

func (t *tally) explain(m *member, message string) string {
	if n := t.unknownBeside(m); n > 0 {
		return fmt.Sprintf("%s; of %d it isn't known yet", message, n)
	}
	return message
}

// correlationWindow is how close targets break for one cause to be likely.
const correlationWindow = 2 * time.Minute

// breakerIDLayout is the form of an ID: when it opened.
const breakerIDLayout = "20060102t150405z"

// BreakerOpenedAt reads from its ID when a breaker opened; zero when that tells nothing.
func BreakerOpenedAt(id string) time.Time {
	at, err := time.Parse(breakerIDLayout, id)
	if err != nil {
		return time.Time{}
	}
	return at
}

// correlated says whether one cause may have broken both, for all that their runs saw. The times at which they turned
// unhealthy don't tell: who is probed more seldom turns later.
func correlated(a, b *member) bool {
	good, failed := a.lastHealthy, a.firstFailed
	if b.lastHealthy.After(good) {
		good = b.lastHealthy
	}
	if b.firstFailed.Before(failed) {
		failed = b.firstFailed
	}
	return good.Sub(failed) <= correlationWindow
}

// openIfCorrelated opens the breaker when too many that are unhealthy, and that nobody vouches for, broke together with one that just turned.
func (f *Fleet) openIfCorrelated(turned *member, now time.Time) (opened bool) {
	if f.breaker.Blocks() || !turned.counts() || turned.vouched {
		return false
	}
	broke := sets.New[string]()
	for _, m := range f.members {
		if m.turned && m.counts() && !m.vouched && correlated(turned, m) {
			broke.Insert(m.namespace)
		}
	}
	if !f.limits.Suspects(broke.Len(), len(f.votes)) {
		return false
	}
	f.breaker.Open(limit.Opening{ID: now.UTC().Format(breakerIDLayout), OpenedAt: now, Turned: broke.Len(), Targets: len(f.votes)})
	f.openedHere, f.recoveredSince = true, time.Time{}
	return true
}

// closeOnceRecovered closes the breaker once, for as long as an API server must be healthy, at most half as many are unrecovered as would
// open it: what broke so many is over. Half, so that it isn't over because one of them was deleted. Unknown is no recovery.
func (f *Fleet) closeOnceRecovered(now time.Time) (closed bool) {
	open, ok := f.breaker.Opening()
	switch {
	case !ok, f.limits.Suspects(2*len(f.unrecovered), len(f.votes)), f.Complete != nil && !f.Complete():
		f.recoveredSince = time.Time{}
		return false
	case f.recoveredSince.IsZero():
		f.recoveredSince = now
	}
	if now.Sub(f.recoveredSince) < f.Timings.Settle() {
		return false
	}
	f.recoveredSince = time.Time{}
	return f.breaker.ResetBy(open.ID) && f.breaker.Close()
}

// Breaker gives the opening of the one that is open; ok is false when it is closed. It is one for all configs, because what makes many
// targets look broken at once, our network or our clock, makes those look so that are probed later, too.
func (f *Fleet) Breaker() (o limit.Opening, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.breaker.Opening()
}

// FollowBreaker takes over the opening that statuses name, nil for none: of an opening that another process saw they tell. What this process
// opened itself it knows better.
func (f *Fleet) FollowBreaker(named *limit.Opening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openedHere && f.breaker.Blocks() {
		return
	}
	if o, open := f.breaker.Opening(); open && (named == nil || named.ID != o.ID) {
		f.breaker.Follow(nil)
	}
	if named != nil {
		f.breaker.Restore(*named)
	}
	f.openedHere = false
}

// Reset closes the breaker of this ID: someone looked, and the targets that turned unhealthy are to be trusted.
func (f *Fleet) Reset(id string) (closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.breaker.ResetBy(id) {
		return false
	}
	for _, m := range f.members { // so the wave is over
		m.turned = false
	}
	return f.breaker.Close()
}
