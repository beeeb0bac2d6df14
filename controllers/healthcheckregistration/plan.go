package healthcheckregistration

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// plan is what to do with a target now.
type plan struct {
	health.Plan
	// deciders of each condition type.
	deciders map[string][]decider
	// would are the verdicts of registrations that only observe.
	would map[types.UID]map[string]health.Verdict
	// failing are the registrations whose checks find something wrong, or can't be made.
	failing map[types.UID]bool
	// unclaim are condition types of the target's record that it doesn't have, or that aren't ours.
	unclaim []string
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
	p := plan{deciders: map[string][]decider{}, would: map[types.UID]map[string]health.Verdict{}, failing: map[types.UID]bool{}}
	in := health.Input{
		Target: l.object, Shape: layout.Shape, Shapes: map[string]health.Shape{}, Lacks: layout.Lacks, Results: map[string][]health.Result{},
	}
	untouched, unread := map[string]bool{}, map[string]bool{}
	for _, d := range l.deciders {
		results, without := l.results(ctx, d, live)
		for _, t := range without {
			unread[t] = true
		}
		switch {
		case results == nil && (d.state == lifecycle.Deleted || !d.state.IsFrozen() && !d.decides()):
		case results == nil: // what it decides stays as it is
			l.leave(d, untouched)
		case !d.writes(layout):
			p.would[d.registration.UID] = health.PlanTarget(health.Input{Target: l.object, Shape: layout.Shape, Lacks: layout.Lacks, Results: results}, l.r.Observer.Facts.Clock.Now()).Verdicts
			l.unwritten(d, layout, untouched)
		default:
			p.add(d, results, &in)
			p.failing[d.registration.UID] = !allTrue(results)
		}
	}
	for t := range unread { // what isn't all read says nothing
		delete(in.Results, t)
		untouched[t] = true
	}
	l.settle(&p, &in, untouched)
	p.unread = len(unread) > 0
	in.MayFail = func(t string, doubted bool) bool {
		if live.Has(t) {
			return l.mayFail(ctx, t, doubted, p.deciders[t], p.failing)
		}
		return l.believes(p.deciders[t], p.failing)
	}
	name, uid, now := nameOf(l.target).String(), l.object.GetUID(), l.r.Observer.Facts.Clock.Now()
	in.Contest = func(t string, found, next *health.Condition) (rewrites bool, until time.Time) {
		return l.r.contests.Ask(name, uid, t, found, next, now)
	}
	p.Plan = health.PlanTarget(in, now)
	var until time.Time
	l.contested, until = l.r.contests.Contested(name, uid, now)
	p.LookAgain = health.Sooner(p.LookAgain, until)
	p.Steps = slices.DeleteFunc(p.Steps, func(s health.Step) bool { return l.heldBack(s, p.deciders[s.Condition.Type]) })
	return p
}

// unwritten takes in that a registration's conditions aren't written. If they can't be now, that is no reason to take them off.
func (l *look) unwritten(d decider, layout health.Layout, untouched map[string]bool) {
	if layout.Problem != "" {
		l.leave(d, untouched)
	}
	if why := d.registration.Unwritable(layout); why != "" && d.decides() {
		l.leave(d, untouched)
		l.problem = why
		l.r.Layouts.Doubt(l.object.GroupVersionKind()) // somebody may mend the definition, or make it anew
	}
}

// leave has what a registration decides stay as it is.
func (l *look) leave(d decider, untouched map[string]bool) {
	for _, t := range l.typesOf(d) {
		untouched[t] = true
	}
}

// add takes in what a registration's checks say.
func (p *plan) add(d decider, results map[string][]health.Result, in *health.Input) {
	for t, of := range results {
		p.deciders[t] = append(p.deciders[t], d)
		in.Results[t] = append(in.Results[t], of...)
	}
	in.Remove = append(in.Remove, d.removes()...)
	if o := d.registration.Output; o == v1alpha1.OutputGardener || o == v1alpha1.OutputConditions {
		for t := range results {
			in.Shapes[t] = health.Shape(o)
		}
	}
}

func allTrue(results map[string][]health.Result) bool {
	for _, of := range results {
		if slices.ContainsFunc(of, func(r health.Result) bool { return r.Status != health.True }) {
			return false
		}
	}
	return true
}

// writes says whether a registration's conditions are written at all.
func (d decider) writes(layout health.Layout) bool {
	return d.decides() && d.registration.Unwritable(layout) == ""
}

// decides says whether a registration's conditions are those of targets, and not only told of in its status.
func (d decider) decides() bool {
	return !d.state.IsWithdrawn() && (d.registration == nil || d.registration.Output != v1alpha1.OutputRegistrationOnly)
}

// results are what a registration's checks say; nil when they aren't asked. Without are the condition types for which a kind that
// is looked at isn't all read yet.
func (l *look) results(ctx context.Context, d decider, live sets.Set[string]) (results map[string][]health.Result, without []string) {
	if d.registration == nil || d.state.IsFrozen() || d.state == lifecycle.Deleted {
		return nil, nil
	}
	suspended, err := d.registration.Suspended(d.object)
	if err != nil {
		l.problem = err.Error()
	}
	if suspended {
		return nil, nil
	}
	results, without = l.r.Checker.Results(ctx, d.registration, d.object, live)
	for t := range results {
		if !d.decides() || !l.shared(t) {
			continue
		}
		for i := range results[t] {
			results[t][i].Check = d.registration.Name + "/" + results[t][i].Check
		}
	}
	return results, without
}

// shared says whether several registrations decide a condition type, so that their checks must be told apart.
func (l *look) shared(conditionType string) bool {
	n := 0
	for _, d := range l.deciders {
		if d.decides() && (d.registration == nil && health.Owns(l.object, conditionType) || d.registration != nil && d.registration.Decides(conditionType)) {
			n++
		}
	}
	return n > 1
}

// typesOf are the condition types that a registration decides: all that are recorded, where it can't be read.
func (l *look) typesOf(d decider) []string {
	if d.registration == nil {
		return health.Owned(l.object)
	}
	return d.registration.ConditionTypes()
}

// removes are the condition types that an active registration wants gone.
func (d decider) removes() []string {
	if d.state != lifecycle.Active {
		return nil
	}
	return d.registration.Remove
}

// settle leaves out what isn't to be touched, and adds what nobody decides any more: not while a registration isn't known that
// may decide it.
func (l *look) settle(p *plan, in *health.Input, untouched map[string]bool) {
	for t := range in.Results {
		if health.Find(l.object, t) != nil && !health.Ours(l.object, t) {
			untouched[t] = true
			l.problem = "condition " + t + " is there already, and someone else's; remove it, or choose another conditionType"
		}
	}
	for t := range untouched {
		delete(in.Results, t)
	}
	if l.doubt || l.r.Observer.inDoubt(l.target.Kind) {
		in.Remove = nil
		return
	}
	for _, t := range health.Owned(l.object) {
		_, decided := in.Results[t]
		switch {
		case decided || untouched[t]:
		case health.Ours(l.object, t):
			in.Remove = append(in.Remove, t)
		default:
			p.unclaim = append(p.unclaim, t)
		}
	}
	in.Remove = slices.DeleteFunc(in.Remove, func(t string) bool { return untouched[t] })
	slices.Sort(in.Remove)
	in.Remove = slices.Compact(in.Remove)
}

// believes says whether no breaker is open of a condition's registrations that find something wrong: what is in doubt already needs
// no live look, of which there would be thousands when it matters most.
func (l *look) believes(deciders []decider, failing map[types.UID]bool) bool {
	return !slices.ContainsFunc(deciders, func(d decider) bool {
		return failing[d.registration.UID] && l.open(d)
	})
}

// mayFail asks the breaker of each of a condition's registrations that finds something wrong. It counts who asks, and isn't asked for
// what is held back anyway.
func (l *look) mayFail(ctx context.Context, conditionType string, doubted bool, deciders []decider, failing map[types.UID]bool) bool {
	if anyHeld(deciders) {
		return l.believes(deciders, failing)
	}
	may := true
	for _, d := range deciders {
		if !failing[d.registration.UID] {
			continue
		}
		flips := l.flips(d)
		if flips == nil {
			may = false
			continue
		}
		targets := l.r.Observer.countOf(ctx, d.registration, flips)
		may = flips.MayFail(nameOf(l.target).String(), conditionType, doubted, targets, l.r.Observer.Facts.Clock.Now()) && may
	}
	return may
}

// open says whether a registration's breaker is. One that isn't known counts as such: its status may tell that it is.
func (l *look) open(d decider) bool {
	flips := l.flips(d)
	if flips == nil {
		return true
	}
	_, open := flips.Breaker()
	return open
}

// flips is a registration's breaker; nil when the registration is forgotten, or not followed yet.
func (l *look) flips(d decider) *health.Flips {
	if page := l.r.Observer.book.page(d.registration.UID); page != nil {
		return &page.flips
	}
	return nil
}

// heldBack: a registration that is refused or paused only heals, and so do all on an object that people hold. What nobody decides
// any more is taken off all the same: that is undone.
func (l *look) heldBack(s health.Step, deciders []decider) bool {
	heals := !s.Remove && s.Before == health.False && s.Condition.Status == health.True
	return !heals && anyHeld(deciders)
}

func anyHeld(deciders []decider) bool {
	return slices.ContainsFunc(deciders, func(d decider) bool { return d.state.HealsOnly() })
}
