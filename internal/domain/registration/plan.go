package registration

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// Decider is a registration that selects a target, or might, and what it may do there.
type Decider struct {
	// Registration is nil where it can't be read.
	*Registration
	State lifecycle.State
	// Why it may do no more, for people; "" where nothing keeps it from anything.
	Why string
	// Held: people hold the target, and nothing else keeps the registration from acting.
	Held bool
	// Doubts: its breaker is open, as far as a forecast is told.
	Doubts bool
}

// On is the decider as it is on a target, which people may hold.
func (d Decider) On(target *unstructured.Unstructured, now time.Time) Decider {
	if kept := hold.Of(target.GetAnnotations()); d.State == lifecycle.Active && kept.Active(now, time.Time{}) {
		d.State, d.Held, d.Why = lifecycle.Paused, true, kept.Message(now)
	}
	return d
}

// Writing says whether a decider's conditions are those of targets, and not only told of in its status.
func (d *Decider) Writing() bool {
	return !d.State.IsWithdrawn() && (d.Registration == nil || d.Writes())
}

// Said is what the checks of one decider say of a target.
type Said struct {
	// Results by condition type; nil where its checks aren't made.
	Results map[string][]health.Result
	// Unread are the condition types of which nothing is known yet, because not all is read.
	Unread []string
	// Failing: they find something wrong, or can't be made.
	Failing bool
	// Suspended: the checks aren't made for now. Problem is why that can't be told; "" when it can.
	Suspended bool
	Problem   string
}

// Say has the checks made of a target, in the version that the registration names, if they are to be made at all.
func (d *Decider) Say(target *unstructured.Unstructured, checks func() (results map[string][]health.Result, unread []string)) (s Said) {
	if d.Registration == nil || d.State.IsFrozen() || d.State == lifecycle.Deleted {
		return s
	}
	var err error
	if s.Suspended, err = d.Suspended(target); err != nil {
		s.Problem = err.Error()
	}
	if s.Suspended {
		return s
	}
	s.Results, s.Unread = checks()
	for _, results := range s.Results {
		s.Failing = s.Failing || slices.ContainsFunc(results, func(r health.Result) bool { return r.Status != health.True })
	}
	return s
}

// Circumstances are what becomes of one target's conditions by, beside what its checks say.
type Circumstances struct {
	Target *unstructured.Unstructured
	// Deciders are all registrations that select the target, or may: of condition types that several decide all checks count.
	Deciders []Decider
	Layout   health.Layout
	// InDoubt: there may be other deciders, so that nothing is taken off.
	InDoubt bool
	// MayFail asks the breaker of the decider at a place, when a condition would turn False because of it: without counts only whether it is
	// open. Nil believes all.
	MayFail func(place int, conditionType string, doubted, counts bool) bool
	// Contest is asked before what somebody else wrote is replaced, see health.Input. Nil replaces it.
	Contest func(conditionType string, found, next *health.Condition) (rewrites bool, until time.Time)
	// There has what the checks look at. Only a forecast needs it.
	There Finder
}

// TargetPlan is what to do with one target now.
type TargetPlan struct {
	health.Plan
	// By are the places of the deciders whose checks decide a condition type together, and Results what they say.
	By      map[string][]int
	Results map[string][]health.Result
	// Alone is what would follow for a decider whose conditions aren't written, by its place.
	Alone map[int]health.Plan
	// Kept are the condition types that stay as they are, each with why; "" where there is nothing to say.
	Kept map[string]string
	// Unclaim are condition types of the target's record that it doesn't have, or that aren't ours.
	Unclaim []string
	// Problem says why a condition isn't written, for people; "" when all are. Unwritable: the target's kind can't have it.
	Problem    string
	Unwritable bool
}

// Plan says what becomes of the target's conditions, by what the checks of each decider say.
func (c *Circumstances) Plan(said []Said, now time.Time) TargetPlan {
	p := TargetPlan{By: map[string][]int{}, Results: map[string][]health.Result{}, Alone: map[int]health.Plan{}, Kept: map[string]string{}}
	in := health.Input{
		Target: c.Target, Shape: c.Layout.Shape, Shapes: map[string]health.Shape{}, Lacks: c.Layout.Lacks, Results: p.Results, Contest: c.Contest,
	}
	for i := range c.Deciders {
		d, s := &c.Deciders[i], said[i]
		s.Results = c.named(d, s.Results)
		if s.Problem != "" {
			p.Problem = s.Problem
		}
		switch {
		case s.Results == nil:
			c.keepUnasked(&p, d, &s)
		case !d.Writing(), d.Unwritable(c.Layout) != "":
			c.alone(&p, i, &s, now)
		default:
			c.add(&p, &in, i, &s)
		}
		for _, t := range s.Unread { // what isn't all read says nothing
			p.Kept[t] = ""
		}
	}
	for t := range p.Results {
		if c.foreign(t) {
			p.Kept[t] = ""
			p.Problem = "condition " + t + " is there already, and someone else's; remove it, or choose another conditionType"
		}
	}
	c.takeOff(&p, &in)
	in.Results = maps.Clone(p.Results)
	maps.DeleteFunc(in.Results, func(t string, _ []health.Result) bool { return p.keeps(t) })
	in.MayFail = func(t string, doubted bool) bool { return c.believed(&p, said, t, doubted) }
	p.Plan = health.PlanTarget(in, now)
	c.holdBack(&p)
	return p
}

func (p *TargetPlan) keeps(conditionType string) bool {
	_, kept := p.Kept[conditionType]
	return kept
}

// foreign says whether the target has a condition of that type, which isn't ours.
func (c *Circumstances) foreign(conditionType string) bool {
	return health.Find(c.Target, conditionType) != nil && !health.Ours(c.Target, conditionType)
}

// decidedBy are the condition types that a decider decides: all that are recorded, where it can't be read.
func (c *Circumstances) decidedBy(d *Decider) []string {
	if d.Registration == nil {
		return health.Owned(c.Target)
	}
	return d.ConditionTypes()
}

// keepUnasked has what a decider decides stay, whose checks aren't made.
func (c *Circumstances) keepUnasked(p *TargetPlan, d *Decider, s *Said) {
	if d.State == lifecycle.Deleted || !d.State.IsFrozen() && !d.Writing() {
		return
	}
	why := ""
	switch {
	case s.Suspended: // one for which that can't be told is so, too
		why = "HealthCheckRegistration " + d.Name + ", which decides it, too, doesn't check this while its suspendWhen is true"
	case d.Registration != nil:
		why = "HealthCheckRegistration " + d.Name + " decides it, too, and " + d.Why
	}
	for _, t := range c.decidedBy(d) {
		p.Kept[t] = why
	}
}

// alone takes in that a decider's conditions aren't written. If they can't be now, that is no reason to take them off.
func (c *Circumstances) alone(p *TargetPlan, place int, s *Said, now time.Time) {
	d := &c.Deciders[place]
	in := health.Input{Target: c.Target, Shape: d.ShapeOn(c.Layout), Lacks: c.Layout.Lacks, Results: s.Results}
	if !d.Writing() && c.MayFail != nil {
		in.MayFail = func(t string, doubted bool) bool { return !s.Failing || c.MayFail(place, t, doubted, true) }
	}
	p.Alone[place] = health.PlanTarget(in, now)
	if d.Writing() {
		p.Problem, p.Unwritable = d.Unwritable(c.Layout), true
	}
	if d.Writing() || c.Layout.Problem != "" {
		for _, t := range d.ConditionTypes() {
			p.Kept[t] = ""
		}
	}
}

// add takes in what a decider's checks say, and what it wants gone.
func (c *Circumstances) add(p *TargetPlan, in *health.Input, place int, s *Said) {
	d := &c.Deciders[place]
	for t, results := range s.Results {
		p.Results[t] = append(p.Results[t], results...)
		p.By[t] = append(p.By[t], place)
		if d.explicit() {
			in.Shapes[t] = health.Shape(d.Output)
		}
	}
	if d.State == lifecycle.Active {
		in.Remove = append(in.Remove, d.Remove...)
	}
}

// named has the names of checks that others must tell from their own.
func (c *Circumstances) named(d *Decider, by map[string][]health.Result) map[string][]health.Result {
	by = maps.Clone(by)
	for t, results := range by {
		results = slices.Clone(results)
		for i := range results {
			results[i].Check = c.called(d, t, results[i].Check)
		}
		by[t] = results
	}
	return by
}

// called is a check's name, with its registration's in front where several decide the condition type.
func (c *Circumstances) called(d *Decider, conditionType, check string) string {
	n := 0
	for i := range c.Deciders {
		if other := &c.Deciders[i]; d.Writing() && other.Writing() && slices.Contains(c.decidedBy(other), conditionType) {
			n++
		}
	}
	if n < 2 {
		return check
	}
	return d.Name + "/" + check
}

// takeOff adds what nobody decides any more: not while a registration isn't known that may decide it.
func (c *Circumstances) takeOff(p *TargetPlan, in *health.Input) {
	if c.InDoubt {
		in.Remove = nil
		return
	}
	concerned := func(t string) bool { _, decided := p.Results[t]; return decided || p.keeps(t) }
	for _, t := range health.Owned(c.Target) {
		switch {
		case concerned(t):
		case health.Ours(c.Target, t):
			in.Remove = append(in.Remove, t)
		default:
			p.Unclaim = append(p.Unclaim, t)
		}
	}
	in.Remove = slices.DeleteFunc(in.Remove, p.keeps)
}

// believed asks the breaker of each of a condition's deciders that finds something wrong. It isn't counted for what is held back anyway.
func (c *Circumstances) believed(p *TargetPlan, said []Said, conditionType string, doubted bool) bool {
	may, counts := true, c.holder(p, conditionType) == nil
	for _, i := range p.By[conditionType] {
		if c.MayFail != nil && said[i].Failing {
			may = c.MayFail(i, conditionType, doubted, counts) && may
		}
	}
	return may
}

// holder is a decider of a condition that lets it heal and no more; nil for none.
func (c *Circumstances) holder(p *TargetPlan, conditionType string) *Decider {
	for _, i := range p.By[conditionType] {
		if d := &c.Deciders[i]; d.State.HealsOnly() {
			return d
		}
	}
	return nil
}

// holdBack: a registration that is refused or paused only heals, and so do all on an object that people hold. What nobody decides any
// more is taken off all the same: that is undone.
func (c *Circumstances) holdBack(p *TargetPlan) {
	for t, verdict := range p.Verdicts {
		is := health.Find(c.Target, t)
		heals := is != nil && is.Status == health.False && verdict.Status == health.True
		if d := c.holder(p, t); d != nil && !heals {
			p.Kept[t] = d.Why
		}
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s health.Step) bool { return p.keeps(s.Condition.Type) })
}

// Decides says whether a check decides a condition type.
func (r *Registration) Decides(conditionType string) bool {
	return slices.ContainsFunc(r.Checks, func(c *Check) bool { return c.ConditionType == conditionType })
}

// Writes says whether the registration's conditions are written at all.
func (r *Registration) Writes() bool {
	return !r.Observes && r.Output != v1alpha1.OutputRegistrationOnly
}
