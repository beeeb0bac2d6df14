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
	// LookAgain is when it may be allowed without any event; zero when that isn't known.
	LookAgain time.Time
}

// Reasons for which a target isn't scaled.
const (
	HeldByBreaker Reason = "TooManyFailTogether"
	HeldByLimit   Reason = "TooManyScaledDown"
	HeldByPace    Reason = "ScaleUpPaced"
	HeldByClock   Reason = "ClockStepped"
	HeldAsGone    Reason = "TargetGone"
	HeldAsUntried Reason = "KubeconfigUntried"
)

// PermitDown asks for a target to be scaled down and takes its place under the cap: until ObserveDown says that nothing is
// down. A target that has its place keeps it, so that a flow that began is completed; but not through a breaker.
func (f *Fleet) PermitDown(t TargetKey, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.mayGoDown(t, now)
	if p.Allowed {
		f.change(t, func(m *member) { m.down, m.rising = true, false })
	}
	return p
}

// MayGoDown says whether a target may be scaled down by what is known of it alone.
func (t *Target) MayGoDown() Permit {
	if !t.Works() {
		return Permit{Reason: HeldAsUntried, Message: "the external kubeconfig, in Secret " + t.Config.ExternalSecret + ", has never worked since it was written"}
	}
	return Permit{Allowed: true}
}

// MayGoDown says what PermitDown would, and takes no place.
func (f *Fleet) MayGoDown(t TargetKey, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mayGoDown(t, now)
}

// mayGoDown needs f.mu.
func (f *Fleet) mayGoDown(t TargetKey, now time.Time) Permit {
	if now.Before(f.actsFrom) {
		return Permit{Reason: HeldByClock, LookAgain: f.actsFrom, Message: "our clock stepped; nothing is scaled down until " + f.actsFrom.UTC().Format(time.RFC3339)}
	}
	m := f.members[t]
	if open, ok := f.breaker.Opening(); ok && (m == nil || !m.vouched) {
		return Permit{Reason: HeldByBreaker, Message: heldBy(open)}
	}
	if m == nil {
		return Permit{Reason: HeldAsGone, Message: "the config, or the namespace, is gone"}
	}
	if full := f.full(m); full != "" && !m.down {
		return Permit{Reason: HeldByLimit, Message: full}
	}
	return Permit{Allowed: true}
}

func heldBy(b limit.Opening) string {
	many := "too many targets"
	if b.Targets > 0 {
		many = fmt.Sprintf("%d of %d probed namespaces", b.Turned, b.Targets)
	}
	return fmt.Sprintf("%s turned unhealthy together at %s; nothing is scaled down before that is over, or breaker %s is reset, see BreakerOpen", many, b.OpenedAt.UTC().Format(time.RFC3339), b.ID)
}

// PermitUp asks for a target to be scaled up. That is only paced: once begun it goes on.
func (f *Fleet) PermitUp(t TargetKey, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[t]
	if m == nil || m.rising || !m.down { // what is gone from the fleet may still have to be given back
		return Permit{Allowed: true}
	}
	f.raised = slices.DeleteFunc(f.raised, func(r raise) bool { return now.Sub(r.at) >= f.Timings.ScaleUpWindow() })
	if len(f.raised) >= raisePace {
		f.waiting[t] = now
		return Permit{Reason: HeldByPace, LookAgain: f.raised[0].at.Add(f.Timings.ScaleUpWindow()),
			Message: fmt.Sprintf("%d targets began to be scaled up in the last %s", len(f.raised), f.Timings.ScaleUpWindow())}
	}
	if f.yields(t, now) {
		f.waiting[t] = now
		return Permit{Reason: HeldByPace, LookAgain: now.Add(yieldFor), Message: "another target of this namespace began to be scaled up lately, and those of others wait"}
	}
	delete(f.waiting, t)
	f.raised = append(f.raised, raise{namespace: t.Namespace, at: now})
	m.rising = true
	return Permit{Allowed: true}
}

// raise is a target that began to be scaled up.
type raise struct {
	namespace string
	at        time.Time
}

// yields says whether a target lets others go first: its namespace had a turn lately, and one that had none waits. Whoever lets
// many targets of one namespace come and go would otherwise keep everybody's down. Who didn't ask again when a turn was free
// waits no more. It needs f.mu.
func (f *Fleet) yields(t TargetKey, now time.Time) bool {
	had := sets.New[string]()
	for _, r := range f.raised {
		had.Insert(r.namespace)
	}
	if !had.Has(t.Namespace) {
		return false
	}
	for other, asked := range f.waiting {
		if now.Sub(asked) <= f.Timings.ScaleUpWindow()+yieldFor && !had.Has(other.Namespace) {
			return true
		}
	}
	return false
}

// tally counts members: those that are probed, that are probed and in force, of which something is scaled down, and of which
// that isn't known.
type tally struct{ probed, acting, down, unread int }

func (t *tally) add(m *member, by int) {
	for _, c := range []struct {
		counts bool
		of     *int
	}{{m.probed, &t.probed}, {m.acting(), &t.acting}, {m.down, &t.down}, {m.unread, &t.unread}} {
		if c.counts {
			*c.of += by
		}
	}
}

// full says why a member that isn't down must not be scaled down, "" when it may. It needs f.mu.
//
// The cap is shared: whoever runs a probed server can make it fail, and with many targets would otherwise use up the places of
// all. Tenants leave those in Autohealer's own namespace their part, by their numbers, and a tenant leaves other tenants
// theirs, but each has one place.
func (f *Fleet) full(m *member) string {
	most, limit := f.limits.ScaledDownTargets(f.all.acting), f.limits.MaxScaledDownTargets
	if f.all.taken(m) >= most {
		return f.all.says(m, fmt.Sprintf("%d of %d targets are scaled down, and maxScaledDownTargets %s allows %d", f.all.down, f.all.acting, limit, most))
	}
	if !m.tenant {
		return ""
	}
	own := f.tenant[m.namespace]
	if share := max(1, part(most, own.acting, f.all.acting)); own.taken(m) >= share {
		return own.says(m, fmt.Sprintf("%d of %d targets of namespace %s are scaled down, and its share of maxScaledDownTargets %s is %d", own.down, own.acting, m.namespace, limit, share))
	}
	if share := max(1, most-part(most, f.all.acting-f.tenants.acting, f.all.acting)); f.tenants.taken(m) >= share {
		return f.tenants.says(m, fmt.Sprintf("%d of %d targets of tenants are scaled down, and maxScaledDownTargets %s allows them %d", f.tenants.down, f.tenants.acting, limit, share))
	}
	return ""
}

// part of a whole that some of all have, rounded down.
func part(whole, some, all int) int {
	if all == 0 {
		return 0
	}
	return whole * some / all
}

// taken are the places that others than the member have, or may have.
func (t *tally) taken(m *member) int { return t.down + t.unreadBeside(m) }

func (t *tally) unreadBeside(m *member) int {
	if m.unread {
		return t.unread - 1
	}
	return t.unread
}

func (t *tally) says(m *member, message string) string {
	if n := t.unreadBeside(m); n > 0 {
		return fmt.Sprintf("%s; of %d it isn't known yet", message, n)
	}
	return message
}
