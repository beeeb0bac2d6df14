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
	// said is what the checks of each of the look's deciders say.
	said []registration.Said
	// unread: some kind that checks look at isn't all read yet.
	unread bool
}

// harmful are the condition types that would turn False.
func (p plan) harmful() sets.Set[string] {
	types := sets.New[string]()
	for _, s := range p.Steps {
		if s.TurnsFalse() || s.Held {
			types.Insert(s.Condition.Type)
		}
	}
	return types
}

// confirmed plans by what was seen last, which may be old: only what is there now turns a condition False. Checks of other conditions aren't
// made anew: one that would hang isn't waited for.
func (l *look) confirmed(ctx context.Context, layout health.Layout) plan {
	live := sets.New[string]()
	p := l.plan(ctx, layout, live)
	for !live.IsSuperset(p.harmful()) {
		if live.Len() > 0 { // its steps are counted anew
			l.notFailed(p, p.Steps)
		}
		live = live.Union(p.harmful())
		p = l.plan(ctx, layout, live)
	}
	return p
}

// plan makes the checks and says what follows: of the live condition types by what is there now, and counted by the breakers.
func (l *look) plan(ctx context.Context, layout health.Layout, live sets.Set[string]) plan {
	name, uid := nameOf(l.target).String(), l.object.GetUID()
	c := registration.Circumstances{Target: l.object, Layout: layout}
	p := plan{}
	for i := range l.deciders {
		d := &l.deciders[i]
		said := d.Say(d.object, func() (map[string][]health.Result, []string) {
			return l.r.Checker.Results(ctx, d.Registration, d.object, live)
		})
		c.Deciders, p.said = append(c.Deciders, d.Decider), append(p.said, said)
		p.unread = p.unread || len(said.Unread) > 0
	}
	c.InDoubt = l.doubt || l.r.Observer.inDoubt(l.target.Kind) // the checks took their time
	now := l.r.Observer.Facts.Clock.Now()
	c.MayFail = func(place int, t string, doubted, counts bool) bool {
		return l.mayFail(ctx, &l.deciders[place], t, doubted, counts && live.Has(t))
	}
	c.Contest = func(t string, found, next *health.Condition) (rewrites bool, until time.Time) {
		return l.r.contests.Ask(name, uid, t, found, next, now)
	}
	p.TargetPlan = c.Plan(p.said, now)
	if l.problem = p.Problem; p.Unwritable {
		l.r.Layouts.Doubt(l.object.GroupVersionKind()) // somebody may mend the definition, or make it anew
	}
	var until time.Time
	l.contested, until = l.r.contests.Contested(name, uid, now)
	p.LookAgain = health.Sooner(p.LookAgain, until)
	return p
}

// by are the deciders of a condition type.
func (l *look) by(p plan, conditionType string) (all []decider) {
	for _, place := range p.By[conditionType] {
		all = append(all, l.deciders[place])
	}
	return all
}

// mayFail asks a registration's breaker, which counts only what is read live: what is in doubt already needs no live look, of which there would be
// thousands when it matters most. One that isn't known counts as open: its status may tell that it is.
func (l *look) mayFail(ctx context.Context, d *decider, conditionType string, doubted, counts bool) bool {
	flips := l.flips(d)
	switch {
	case !d.Writing(): // and turns nothing
		return true
	case flips == nil:
		return false
	case !counts:
		_, open := flips.Breaker()
		return !open
	}
	targets := l.r.Observer.countOf(ctx, d.Registration, flips)
	return flips.MayFail(nameOf(l.target).String(), conditionType, doubted, targets, l.r.Observer.Facts.Clock.Now())
}

// flips is a registration's breaker; nil when the registration is forgotten, or not followed yet.
func (l *look) flips(d *decider) *health.Flips {
	if page := l.r.Observer.book.page(d.UID); page != nil {
		return &page.flips
	}
	return nil
}

func anyHeld(deciders []decider) bool {
	return slices.ContainsFunc(deciders, func(d decider) bool { return d.State.HealsOnly() })
}
