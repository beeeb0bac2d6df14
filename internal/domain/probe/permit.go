package probe

import (
	"fmt"
	"slices"
	"time"
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
	HeldByBreaker Reason = "ProbeSuspect"
	HeldByLimit   Reason = "TooManyScaledDown"
	HeldByPace    Reason = "ScaleUpPaced"
	HeldByClock   Reason = "ClockStepped"
	HeldAsGone    Reason = "TargetGone"
)

// PermitDown asks for a target to be scaled down and takes its place under the cap: until ObserveDown says that nothing is
// down. A target that has its place keeps it, so that a flow that began is completed; but not through a breaker.
func (f *Fleet) PermitDown(t Target, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Before(f.actsFrom) {
		return Permit{Reason: HeldByClock, LookAgain: f.actsFrom, Message: "our clock stepped; nothing is scaled down until " + f.actsFrom.UTC().Format(time.RFC3339)}
	}
	if b := f.breaker; b != nil {
		return Permit{Reason: HeldByBreaker, Message: b.message()}
	}
	m := f.members[t]
	if m == nil {
		return Permit{Reason: HeldAsGone, Message: "the config, or the namespace, is gone"}
	}
	if m.down {
		m.rising = false
		return Permit{Allowed: true}
	}
	unread := f.unread
	if m.unread {
		unread--
	}
	if most := f.limits.ScaledDownTargets(f.acting); f.down+unread >= most {
		message := fmt.Sprintf("%d of %d targets are scaled down, and maxScaledDownTargets %s allows %d", f.down, f.acting, f.limits.MaxScaledDownTargets, most)
		if unread > 0 {
			message += fmt.Sprintf("; of %d it isn't known yet", unread)
		}
		return Permit{Reason: HeldByLimit, Message: message}
	}
	mark(&m.down, &f.down, true)
	m.rising = false
	return Permit{Allowed: true}
}

func (b *Breaker) message() string {
	many := "too many targets"
	if b.Probed > 0 {
		many = fmt.Sprintf("%d of %d probed namespaces", b.Unhealthy, b.Probed)
	}
	return fmt.Sprintf("%s turned unhealthy together at %s; nothing is scaled down before breaker %s is reset, see BreakerOpen", many, b.OpenedAt.UTC().Format(time.RFC3339), b.ID)
}

// PermitUp asks for a target to be scaled up. That is only paced: once begun it goes on.
func (f *Fleet) PermitUp(t Target, now time.Time) Permit {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[t]
	if m == nil || m.rising || !m.down { // what is gone from the fleet may still have to be given back
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
