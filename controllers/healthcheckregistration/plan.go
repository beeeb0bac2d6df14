package healthcheckregistration

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// plan is what to do with a target now.
type plan struct {
	registration.TargetPlan
	// results is what the checks of each of the evaluation's registrations say.
	results []registration.CheckResults
	// notSynced: some kind that checks look at isn't all read yet.
	notSynced bool
}

// turningFalse are the condition types that would turn False.
func (p plan) turningFalse() sets.Set[string] {
	types := sets.New[string]()
	for _, s := range p.Steps {
		if s.TurnsFalse() || s.Held {
			types.Insert(s.Condition.Type)
		}
	}
	return types
}

// confirmedPlan plans by what was seen last, which may be old: only what is there now turns a condition False. Checks of other conditions aren't
// made anew: one that would hang isn't waited for.
func (l *evaluation) confirmedPlan(ctx context.Context, layout health.Layout) plan {
	live := sets.New[string]()
	p := l.plan(ctx, layout, live)
	for !live.IsSuperset(p.turningFalse()) {
		if live.Len() > 0 { // its steps are counted anew
			l.revertFalse(p, p.Steps)
		}
		live = live.Union(p.turningFalse())
		p = l.plan(ctx, layout, live)
	}
	return p
}

// plan makes the checks and says what follows: of the live condition types by what is there now, and counted by the breakers.
func (l *evaluation) plan(ctx context.Context, layout health.Layout, live sets.Set[string]) plan {
	name, uid := nameOf(l.target).String(), l.object.GetUID()
	c := registration.TargetInput{Target: l.object, Layout: layout}
	p := plan{}
	for i := range l.registrations {
		d := &l.registrations[i]
		said := d.RunChecks(d.object, func() (map[string][]health.Result, []string) {
			return l.r.Checker.Results(ctx, d.Registration, d.object, live)
		})
		c.Registrations, p.results = append(c.Registrations, d.ActiveRegistration), append(p.results, said)
		p.notSynced = p.notSynced || len(said.NotSynced) > 0
	}
	c.RegistrationsUnknown = l.registrationsUnknown || l.r.Observer.registrationsUnknown(l.target.Kind) // the checks took their time
	now := l.r.Observer.Facts.Clock.Now()
	c.AllowFalse = func(index int, t string, doubted, counts bool) bool {
		return l.allowFalse(ctx, &l.registrations[index], t, doubted, counts && live.Has(t))
	}
	c.CheckConflict = func(t string, found, next *health.Condition) (rewrites bool, until time.Time) {
		return l.r.conflicts.Check(name, uid, t, found, next, now)
	}
	p.TargetPlan = c.Plan(p.results, now)
	if l.problem = p.Problem; p.Unwritable {
		l.r.Layouts.Invalidate(l.object.GroupVersionKind()) // somebody may fix the definition, or make it anew
	}
	var until time.Time
	l.contested, until = l.r.conflicts.Persistent(name, uid, now)
	p.RequeueAt = health.Earlier(p.RequeueAt, until)
	return p
}

// decidedBy are the registrations of a condition type.
func (l *evaluation) decidedBy(p plan, conditionType string) (all []activeRegistration) {
	for _, index := range p.DecidedBy[conditionType] {
		all = append(all, l.registrations[index])
	}
	return all
}

// allowFalse asks a registration's breaker, which counts only what is read live: what is in doubt already needs no live look, of which there would be
// thousands when it matters most. One that isn't known counts as open: its status may say that it is.
func (l *evaluation) allowFalse(ctx context.Context, d *activeRegistration, conditionType string, doubted, counts bool) bool {
	breaker := l.breakerOf(d)
	switch {
	case !d.Writing(): // and turns nothing
		return true
	case breaker == nil:
		return false
	case !counts:
		_, open := breaker.Opening()
		return !open
	}
	targets := l.r.Observer.targetCount(ctx, d.Registration, breaker)
	return breaker.AllowFalse(nameOf(l.target).String(), conditionType, doubted, targets, l.r.Observer.Facts.Clock.Now())
}

// breakerOf is a registration's breaker; nil when the registration is forgotten, or not followed yet.
func (l *evaluation) breakerOf(d *activeRegistration) *health.Breaker {
	if list := l.r.Observer.results.results(d.UID); list != nil {
		return &list.breaker
	}
	return nil
}

func anyHealsOnly(deciding []activeRegistration) bool {
	return slices.ContainsFunc(deciding, func(d activeRegistration) bool { return d.State.HealsOnly() })
}

// updateBreaker tells a registration's breaker what its conditions came to, and says whether something isn't in doubt any more.
func (l *evaluation) updateBreaker(index int, p plan, verdicts map[string]health.Verdict, is outcome, breaker *health.Breaker) (released bool) {
	name := nameOf(l.target).String()
	for _, t := range l.registrations[index].ConditionTypes() {
		v, ok := verdicts[t]
		_, notDone := is.notDone[t]
		switch {
		case notDone, ok && l.staysAsIs(index, p, t):
		case ok && l.mayBeHeldBack(index, p, t):
			released = breaker.RecordVerdict(name, t, v) || released
		case ok, l.doesNotDecide(index, p, t):
			released = breaker.Release(name, t) || released
		}
	}
	return released
}

// staysAsIs says whether a condition is left as it is for now, though a registration decides it: one of its registrations may not act, or its kind takes
// no conditions.
func (l *evaluation) staysAsIs(index int, p plan, conditionType string) bool {
	_, unwritten := p.Unwritten[index]
	by := l.decidedBy(p, conditionType)
	return unwritten && l.registrations[index].Writing() || anyHealsOnly(by) && !onHold(by)
}

// mayBeHeldBack says whether a registration's breaker may hold a condition back: its checks find something, and not people hold the target.
func (l *evaluation) mayBeHeldBack(index int, p plan, conditionType string) bool {
	_, isUnwritten := p.Unwritten[index]
	return !isUnwritten && p.results[index].Failing && !onHold(l.decidedBy(p, conditionType))
}

func onHold(deciding []activeRegistration) bool {
	return slices.ContainsFunc(deciding, func(d activeRegistration) bool { return d.Held })
}

// doesNotDecide says whether a registration has nothing to say of a condition for as long as nobody changes that: its checks are suspended, or the
// condition is somebody else's. That it can't say for now isn't that.
func (l *evaluation) doesNotDecide(index int, p plan, conditionType string) bool {
	suspended := len(p.results) > 0 && p.results[index].Suspended && p.results[index].Problem == ""
	return suspended || health.Find(l.object, conditionType) != nil && !health.Ours(l.object, conditionType)
}
