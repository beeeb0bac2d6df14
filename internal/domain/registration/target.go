package registration

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// TargetForecast is what a registration would make of one target's conditions.
type TargetForecast struct {
	Namespace, Name string
	// Suspended: suspendWhen is true, so its conditions stay as they are.
	Suspended bool
	// Problem says why suspendWhen can't be told; "" when it can.
	Problem string
	// Stands is the registration's state where it makes no checks at all, and Why says so; "" where it makes them.
	Stands     lifecycle.State
	Why        string
	Conditions []ConditionForecast
}

// ConditionForecast is what would become of one condition.
type ConditionForecast struct {
	Type string
	// Now is its status on the target, "" when there is none; Since is when that began.
	Now   health.Status
	Since time.Time
	// Would is what its checks say. Its status is "" while checks that aren't made here could change it.
	Would health.Verdict
	// Results of the checks that were made, by name; NotMade are the names of the others. At is what each looks at.
	Results []health.Result
	NotMade []string
	At      map[string]string
	// Foreign: it is there, and someone else's, so it isn't written.
	Foreign bool
	// Held: its checks say False, and the breaker doesn't believe it.
	Held bool
	// Kept says why it stays as it is, whatever its checks say; "" when it doesn't.
	Kept string
	// Removed: nothing decides it any more, or it is asked to go.
	Removed bool
	// Changes: it would become another one. Writes: and that is written.
	Changes, Writes bool
}

// Fails says whether the condition would turn False.
func (c *ConditionForecast) Fails() bool {
	return c.Would.Status == health.False && c.Now != health.False && !c.Foreign && !c.Held && c.Kept == ""
}

// Faulty says whether an expression of one of its checks can't be evaluated for the target, which makes it Unknown.
func (c *ConditionForecast) Faulty() bool {
	return c.Would.Status == health.Unknown && slices.ContainsFunc(c.Results, func(r health.Result) bool { return r.Faulty })
}

// Quiet says that there is nothing to tell of the target: its conditions are True, and would stay so.
func (t *TargetForecast) Quiet() bool {
	for i := range t.Conditions {
		if c := &t.Conditions[i]; c.Foreign || c.Kept != "" || c.Would.Status != health.True {
			return false
		}
	}
	return t.Problem == "" && !t.Suspended
}

// Worst is the worst status that one of the conditions would have, "" when none is known.
func (t *TargetForecast) Worst() (worst health.Status) {
	for i := range t.Conditions {
		if s := t.Conditions[i].Would.Status; s != "" && (worst == "" || Worse(s, worst)) {
			worst = s
		}
	}
	return worst
}

// Worse orders statuses for people: False, Unknown, Progressing, True.
func Worse(a, b health.Status) bool {
	return slices.Index(fromWorst, a) < slices.Index(fromWorst, b)
}

var fromWorst = []health.Status{health.False, health.Unknown, health.Progressing, health.True, ""}

// Circumstances are what a forecast for one target depends on, beside the registration.
type Circumstances struct {
	Target *unstructured.Unstructured
	// State of the registration itself, and Why it may do no more.
	State lifecycle.State
	Why   string
	// Others that select the target: of condition types that they decide, too, all checks count. One that names the kind in another
	// version has checks that can't be made of this one.
	Others []Decider
	Shape  health.Shape
	// Lacks is what conditions of the target can't have.
	Lacks health.Lacks
	There Finder
	// MayFail asks the registration's own breaker.
	MayFail func(conditionType string) bool
}

// Forecast plans one target's conditions as the controller does: with the same checks, aggregate and steps.
func (r *Registration) Forecast(c Circumstances, now time.Time) TargetForecast {
	f := TargetForecast{Namespace: c.Target.GetNamespace(), Name: c.Target.GetName()}
	if c.State.IsFrozen() || c.State == lifecycle.Deleted {
		f.Stands, f.Why = c.State, c.Why
		return f
	}
	suspended, err := r.Suspended(c.Target)
	if f.Suspended = suspended; err != nil {
		f.Problem = err.Error()
	}
	if suspended {
		return f
	}
	in := health.Input{Target: c.Target, Shape: c.Shape, Lacks: c.Lacks, Results: map[string][]health.Result{}}
	in.MayFail = func(t string, _ bool) bool { return r.mayFail(&c, t, now) }
	for _, t := range r.ConditionTypes() {
		one := r.condition(&c, t, now)
		if one.Would.Status != "" && !one.Foreign && one.Kept == "" {
			in.Results[t] = one.Results
		}
		f.Conditions = append(f.Conditions, one)
	}
	in.Remove = r.undecided(&c, now)
	plan := health.PlanTarget(in, now)
	for _, step := range plan.Steps {
		if step.Remove {
			is := step.Condition
			f.Conditions = append(f.Conditions, ConditionForecast{Type: is.Type, Now: is.Status, Since: is.LastTransition, Removed: true, Changes: true, Writes: true})
			continue
		}
		i := slices.IndexFunc(f.Conditions, func(c ConditionForecast) bool { return c.Type == step.Condition.Type })
		f.Conditions[i].Changes, f.Conditions[i].Writes, f.Conditions[i].Held = true, r.Writes(), step.Held
		f.Conditions[i].Would = plan.Verdicts[step.Condition.Type]
	}
	return f
}

// undecided are the condition types of a target that are to go: no registration decides them.
func (r *Registration) undecided(c *Circumstances, now time.Time) (types []string) {
	if !r.Writes() {
		return nil
	}
	return Undecided(c.Target, append(c.Others, Decider{Registration: r, State: c.State}), now)
}

// Undecided are the condition types of a target that are to go: they are ours and none of its deciders decides them, or one asks for
// that.
func Undecided(target *unstructured.Unstructured, deciders []Decider, now time.Time) (types []string) {
	for _, t := range health.Owned(target) {
		if health.Ours(target, t) {
			types = append(types, t)
		}
	}
	held := hold.Of(target.GetAnnotations()).Holds(now, time.Time{})
	for i := range deciders {
		d := &deciders[i]
		if suspended, _ := d.Suspended(target); d.State == lifecycle.Active && d.Writes() && !suspended && !held {
			types = append(types, d.Remove...)
		}
	}
	types = slices.DeleteFunc(types, func(t string) bool {
		return !health.Find(target, t).ByChecks() || slices.ContainsFunc(deciders, func(d Decider) bool { return d.concerns(t) })
	})
	slices.Sort(types)
	return slices.Compact(types)
}

// with are the other registrations that decide a condition type of the target. One that isn't written is decided by itself.
func (r *Registration) with(c *Circumstances, conditionType string) (others []Decider) {
	for _, other := range c.Others {
		if r.Writes() && other.concerns(conditionType) {
			others = append(others, other)
		}
	}
	return others
}

// mayFail asks the breakers of all that decide a condition type and find something wrong with the target.
func (r *Registration) mayFail(c *Circumstances, conditionType string, now time.Time) bool {
	finds := func(d *Registration) bool { return d.findsFault(c, now) }
	for _, other := range r.with(c, conditionType) {
		if other.Doubts && (other.Kind != r.Kind || finds(other.Registration)) {
			return false
		}
	}
	return c.MayFail == nil || !finds(r) || c.MayFail(conditionType)
}

// findsFault says whether one of the checks isn't True.
func (r *Registration) findsFault(c *Circumstances, now time.Time) bool {
	return slices.ContainsFunc(r.Checks, func(check *Check) bool {
		result, err := check.Result(c.Target, c.There, now)
		return err != nil || result.Status != health.True
	})
}

// condition makes the checks of one type, and says what they say together.
func (r *Registration) condition(c *Circumstances, conditionType string, now time.Time) ConditionForecast {
	f := ConditionForecast{Type: conditionType, At: map[string]string{}}
	before := health.Find(c.Target, conditionType)
	if before != nil {
		f.Now, f.Since, f.Foreign = before.Status, before.LastTransition, r.Output != v1alpha1.OutputRegistrationOnly && !health.Ours(c.Target, conditionType)
	}
	deciders := append([]Decider{{Registration: r, State: c.State, Why: c.Why}}, r.with(c, conditionType)...)
	for _, d := range deciders {
		if d.State.IsFrozen() {
			continue
		}
		for _, check := range d.Checks {
			if check.ConditionType == conditionType {
				f.take(d.Registration, check, c, len(deciders) > 1, d.Kind == r.Kind, now)
			}
		}
	}
	f.Would = health.Aggregate(f.Results, before.Past(), now)
	if len(f.NotMade) > 0 && f.Would.Status != health.False || len(f.Results) == 0 { // a False one makes it False, whatever the rest say
		f.Would = health.Verdict{}
	}
	if r.Writes() {
		f.keep(c, deciders, now)
	}
	return f
}

// keep says what keeps a condition as it is. A hold, a pause and rules that refuse let it heal.
func (c *ConditionForecast) keep(of *Circumstances, deciders []Decider, now time.Time) {
	heals := c.Now == health.False && c.Would.Status == health.True
	if kept := hold.Of(of.Target.GetAnnotations()); kept.Holds(now, time.Time{}) && !heals {
		c.Kept = kept.Says(now)
	}
	for i := range deciders {
		d := &deciders[i]
		suspended, _ := d.Suspended(of.Target) // one for which that can't be told is so, too
		switch {
		case d.State.IsFrozen():
			c.Kept = "HealthCheckRegistration " + d.Name + " decides it, too, and " + d.Why
		case d.State.HealsOnly() && !heals:
			c.Kept = d.Why
		case suspended:
			c.Kept = "HealthCheckRegistration " + d.Name + ", which decides it, too, doesn't check this while its suspendWhen is true"
		}
	}
}

// take makes one check.
func (c *ConditionForecast) take(d *Registration, check *Check, of *Circumstances, shared, sameVersion bool, now time.Time) {
	name := check.Name
	if shared {
		name = d.Name + "/" + name
	}
	if !sameVersion { // its expressions are for what isn't read here
		c.NotMade = append(c.NotMade, name)
		return
	}
	c.At[name] = check.at(of.Target, of.There)
	result, err := check.Result(of.Target, of.There, now)
	if errors.Is(err, ErrNotLooked) {
		c.NotMade = append(c.NotMade, name)
		return
	}
	if err != nil {
		result = check.Failed(err)
	}
	result.Check = name
	c.Results = append(c.Results, result)
}

// Decides says whether a check decides a condition type.
func (r *Registration) Decides(conditionType string) bool {
	return slices.ContainsFunc(r.Checks, func(c *Check) bool { return c.ConditionType == conditionType })
}

// ConditionTypes are those that the checks decide, sorted.
func (r *Registration) ConditionTypes() []string {
	types := sets.New[string]()
	for _, c := range r.Checks {
		types.Insert(c.ConditionType)
	}
	return sets.List(types)
}
