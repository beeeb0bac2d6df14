package registration

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// ActiveRegistration is a registration that selects a target, or might, and what it may do there.
type ActiveRegistration struct {
	// Registration is nil where it can't be read.
	*Registration
	State lifecycle.State
	// Reason it may do no more, for people; "" where nothing keeps it from anything.
	Reason string
	// Held: people hold the target, and nothing else keeps the registration from acting.
	Held bool
	// BreakerOpen: its breaker is open, as far as a forecast knows.
	BreakerOpen bool
}

// OnTarget is the registration as it is on a target, which people may hold.
func (d ActiveRegistration) OnTarget(target *unstructured.Unstructured, now time.Time) ActiveRegistration {
	if kept := hold.Of(target.GetAnnotations()); d.State == lifecycle.Active && kept.Active(now, time.Time{}) {
		d.State, d.Held, d.Reason = lifecycle.Paused, true, kept.Message(now)
	}
	return d
}

// Writing says whether a registration's conditions are those of targets, and not only reported in its status.
func (d *ActiveRegistration) Writing() bool {
	return !d.State.IsWithdrawn() && (d.Registration == nil || d.Writes())
}

// CheckResults is what the checks of one registration say of a target.
type CheckResults struct {
	// Results by condition type; nil where its checks aren't made.
	Results map[string][]health.Result
	// NotSynced are the condition types of which nothing is known yet, because not all is read.
	NotSynced []string
	// Failing: they find something wrong, or can't be made.
	Failing bool
	// Suspended: the checks aren't made for now. Problem is why that isn't known; "" when it is.
	Suspended bool
	Problem   string
}

// RunChecks has the checks made of a target, in the version that the registration names, if they are to be made at all.
func (d *ActiveRegistration) RunChecks(target *unstructured.Unstructured, checks func() (results map[string][]health.Result, unread []string)) (s CheckResults) {
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
	s.Results, s.NotSynced = checks()
	for _, results := range s.Results {
		s.Failing = s.Failing || slices.ContainsFunc(results, func(r health.Result) bool { return r.Status != health.True })
	}
	return s
}

// TargetInput are what becomes of one target's conditions by, beside what its checks say.
type TargetInput struct {
	Target *unstructured.Unstructured
	// Registrations are all registrations that select the target, or may: of condition types that several decide all checks count.
	Registrations []ActiveRegistration
	Layout        health.Layout
	// RegistrationsUnknown: there may be other registrations, so that nothing is taken off.
	RegistrationsUnknown bool
	// AllowFalse asks the breaker of the registration at an index, when a condition would turn False because of it: without counts only whether it is
	// open. Nil trusts all.
	AllowFalse func(index int, conditionType string, doubted, counts bool) bool
	// CheckConflict is asked before what somebody else wrote is replaced, see health.Input. Nil replaces it.
	CheckConflict func(conditionType string, found, next *health.Condition) (rewrites bool, until time.Time)
	// Finder has what the checks look at. Only a forecast needs it.
	Finder Finder
}

// TargetPlan is what to do with one target now.
type TargetPlan struct {
	health.Plan
	// DecidedBy are the indexes of the registrations whose checks decide a condition type together, and Results what they say.
	DecidedBy map[string][]int
	Results   map[string][]health.Result
	// Unwritten is what would follow for a registration whose conditions aren't written, by its index.
	Unwritten map[int]health.Plan
	// Unchanged are the condition types that stay as they are, each with why; "" where there is nothing to say.
	Unchanged map[string]string
	// ReleaseClaims are condition types of the target's record that it doesn't have, or that aren't ours.
	ReleaseClaims []string
	// Problem says why a condition isn't written, for people; "" when all are. Unwritable: the target's kind can't have it.
	Problem    string
	Unwritable bool
}

// Plan says what becomes of the target's conditions, by what the checks of each registration say.
func (c *TargetInput) Plan(said []CheckResults, now time.Time) TargetPlan {
	p := TargetPlan{DecidedBy: map[string][]int{}, Results: map[string][]health.Result{}, Unwritten: map[int]health.Plan{}, Unchanged: map[string]string{}}
	in := health.Input{
		Target: c.Target, Shape: c.Layout.Shape, Shapes: map[string]health.Shape{}, Unsupported: c.Layout.Unsupported, Results: p.Results, CheckConflict: c.CheckConflict,
	}
	for i := range c.Registrations {
		d, s := &c.Registrations[i], said[i]
		s.Results = c.withPrefixes(d, s.Results)
		if s.Problem != "" {
			p.Problem = s.Problem
		}
		switch {
		case s.Results == nil:
			c.keepUnchecked(&p, d, &s)
		case !d.Writing(), d.Unwritable(c.Layout) != "":
			c.planUnwritten(&p, i, &s, now)
		default:
			c.add(&p, &in, i, &s)
		}
		for _, t := range s.NotSynced { // what isn't all read says nothing
			p.Unchanged[t] = ""
		}
	}
	for t := range p.Results {
		if c.foreign(t) {
			p.Unchanged[t] = ""
			p.Problem = "condition " + t + " is there already, and someone else's; remove it, or choose another conditionType"
		}
	}
	c.removeUndecided(&p, &in)
	in.Results = maps.Clone(p.Results)
	maps.DeleteFunc(in.Results, func(t string, _ []health.Result) bool { return p.isUnchanged(t) })
	in.AllowFalse = func(t string, doubted bool) bool { return c.allowFalse(&p, said, t, doubted) }
	p.Plan = health.PlanTarget(in, now)
	c.dropHeld(&p)
	return p
}

func (p *TargetPlan) isUnchanged(conditionType string) bool {
	_, kept := p.Unchanged[conditionType]
	return kept
}

// foreign says whether the target has a condition of that type, which isn't ours.
func (c *TargetInput) foreign(conditionType string) bool {
	return health.Find(c.Target, conditionType) != nil && !health.Ours(c.Target, conditionType)
}

// decidedBy are the condition types that a registration decides: all that are recorded, where it can't be read.
func (c *TargetInput) decidedBy(d *ActiveRegistration) []string {
	if d.Registration == nil {
		return health.Owned(c.Target)
	}
	return d.ConditionTypes()
}

// keepUnchecked has what a registration decides stay, whose checks aren't made.
func (c *TargetInput) keepUnchecked(p *TargetPlan, d *ActiveRegistration, s *CheckResults) {
	if d.State == lifecycle.Deleted || !d.State.IsFrozen() && !d.Writing() {
		return
	}
	why := ""
	switch {
	case s.Suspended: // one for which that can't be known is so, too
		why = "HealthCheckRegistration " + d.Name + ", which decides it, too, doesn't check this while its suspendWhen is true"
	case d.Registration != nil:
		why = "HealthCheckRegistration " + d.Name + " decides it, too, and " + d.Reason
	}
	for _, t := range c.decidedBy(d) {
		p.Unchanged[t] = why
	}
}

// planUnwritten takes in that a registration's conditions aren't written. If they can't be now, that is no reason to take them off.
func (c *TargetInput) planUnwritten(p *TargetPlan, index int, s *CheckResults, now time.Time) {
	d := &c.Registrations[index]
	in := health.Input{Target: c.Target, Shape: d.ShapeFor(c.Layout), Unsupported: c.Layout.Unsupported, Results: s.Results}
	if !d.Writing() && c.AllowFalse != nil {
		in.AllowFalse = func(t string, doubted bool) bool { return !s.Failing || c.AllowFalse(index, t, doubted, true) }
	}
	p.Unwritten[index] = health.PlanTarget(in, now)
	if d.Writing() {
		p.Problem, p.Unwritable = d.Unwritable(c.Layout), true
	}
	if d.Writing() || c.Layout.Problem != "" {
		for _, t := range d.ConditionTypes() {
			p.Unchanged[t] = ""
		}
	}
}

// add takes in what a registration's checks say, and what it wants gone.
func (c *TargetInput) add(p *TargetPlan, in *health.Input, index int, s *CheckResults) {
	d := &c.Registrations[index]
	for t, results := range s.Results {
		p.Results[t] = append(p.Results[t], results...)
		p.DecidedBy[t] = append(p.DecidedBy[t], index)
		if d.hasExplicitShape() {
			in.Shapes[t] = health.Shape(d.Output)
		}
	}
	if d.State == lifecycle.Active {
		in.Remove = append(in.Remove, d.Remove...)
	}
}

// withPrefixes has the names of checks that others must tell from their own.
func (c *TargetInput) withPrefixes(d *ActiveRegistration, by map[string][]health.Result) map[string][]health.Result {
	by = maps.Clone(by)
	for t, results := range by {
		results = slices.Clone(results)
		for i := range results {
			results[i].Check = c.checkName(d, t, results[i].Check)
		}
		by[t] = results
	}
	return by
}

// checkName is a check's name, with its registration's in front where several decide the condition type.
func (c *TargetInput) checkName(d *ActiveRegistration, conditionType, check string) string {
	n := 0
	for i := range c.Registrations {
		if other := &c.Registrations[i]; d.Writing() && other.Writing() && slices.Contains(c.decidedBy(other), conditionType) {
			n++
		}
	}
	if n < 2 {
		return check
	}
	return d.Name + "/" + check
}

// removeUndecided adds what nobody decides any more: not while a registration isn't known that may decide it.
func (c *TargetInput) removeUndecided(p *TargetPlan, in *health.Input) {
	if c.RegistrationsUnknown {
		in.Remove = nil
		return
	}
	concerned := func(t string) bool { _, decided := p.Results[t]; return decided || p.isUnchanged(t) }
	for _, t := range health.Owned(c.Target) {
		switch {
		case concerned(t):
		case health.Ours(c.Target, t):
			in.Remove = append(in.Remove, t)
		default:
			p.ReleaseClaims = append(p.ReleaseClaims, t)
		}
	}
	in.Remove = slices.DeleteFunc(in.Remove, p.isUnchanged)
}

// allowFalse asks the breaker of each of a condition's registrations that finds something wrong. It isn't counted for what is held back anyway.
func (c *TargetInput) allowFalse(p *TargetPlan, said []CheckResults, conditionType string, doubted bool) bool {
	may, counts := true, c.healsOnlyRegistration(p, conditionType) == nil
	for _, i := range p.DecidedBy[conditionType] {
		if c.AllowFalse != nil && said[i].Failing {
			may = c.AllowFalse(i, conditionType, doubted, counts) && may
		}
	}
	return may
}

// healsOnlyRegistration is a registration of a condition that lets it heal and no more; nil for none.
func (c *TargetInput) healsOnlyRegistration(p *TargetPlan, conditionType string) *ActiveRegistration {
	for _, i := range p.DecidedBy[conditionType] {
		if d := &c.Registrations[i]; d.State.HealsOnly() {
			return d
		}
	}
	return nil
}

// dropHeld: a registration that is refused or paused only heals, and so do all on an object that people hold. What nobody decides any
// more is taken off all the same: that is undone.
func (c *TargetInput) dropHeld(p *TargetPlan) {
	for t, verdict := range p.Verdicts {
		is := health.Find(c.Target, t)
		heals := is != nil && is.Status == health.False && verdict.Status == health.True
		if d := c.healsOnlyRegistration(p, t); d != nil && !heals {
			p.Unchanged[t] = d.Reason
		}
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s health.Step) bool { return p.isUnchanged(s.Condition.Type) })
}
