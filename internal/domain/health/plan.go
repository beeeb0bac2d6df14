// Package health decides which conditions an object gets from checks of the objects that it depends on. It is pure: time is an argument,
// and nothing here reads or writes a cluster.
//
//	checks (Builtin, ByStatus, …)   a Result each: True, False, Unknown or Progressing
//	Aggregate                       one Verdict of all checks of a condition type
//	Breaker                         holds back False on too many targets at once: Unknown, HealthCheckInDoubt
//	Next                            the condition that follows from the verdict, and whether it is to be written
//	Patch, ApplyObject              how to write it without touching other conditions
//
// What a condition's status leads to:
//
//	Progressing → False   its time-out is over, or it was False before and not True since
//	Unknown     → as it was, once the checks can be made again
//	False       → True    only when all checks are True
//
// Begin reading at PlanTarget, which does all of this for one target.
package health

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// ReasonInDoubt: the checks say False, for too many targets at once to be trusted.
const ReasonInDoubt = "HealthCheckInDoubt"

const inDoubtPrefix = "held at Unknown, because too many targets turn False at once: "

// Input is everything that the conditions of one target depend on.
type Input struct {
	// Target as it was seen.
	Target *unstructured.Unstructured
	// Shape of its conditions, but for those types that Shapes has.
	Shape  Shape
	Shapes map[string]Shape
	// Unsupported is what isn't written, since the target can't have it.
	Unsupported Unsupported
	// Results of all checks of all registrations, by condition type.
	Results map[string][]Result
	// Remove are condition types that are to go; those with results stay, and so does what isn't of the form of health checks.
	Remove []string
	// AllowFalse is asked when a condition would turn False that isn't so yet, with whether it is in doubt already: false holds that
	// back, see Breaker. Nil holds nothing.
	AllowFalse func(conditionType string, doubted bool) bool
	// CheckConflict is asked at each evaluation, before what is found of a condition is replaced, or removed, see WriteConflicts.Check. Nil replaces it.
	CheckConflict func(conditionType string, found, next *Condition) (rewrites bool, until time.Time)
	// ResetHint ends the message of what is held back: what people may do about it. Nil says nothing.
	ResetHint func() string
}

// Step is what to do with one condition.
type Step struct {
	Condition Condition
	Shape     Shape
	// Previous is the status on the target; "" when there was no such condition.
	Previous Status
	// Remove the condition instead of writing it.
	Remove bool
	// Held: the checks say False, and the breaker doesn't trust it. Counted: it was asked, and does.
	Held, Counted bool
}

// TurnsFalse says whether the step writes a condition False that isn't so yet.
func (s Step) TurnsFalse() bool {
	return !s.Remove && s.Condition.Status == False && s.Previous != False
}

// Result is what a step leaves of the condition; nil for none.
func (s *Step) Result() *Condition {
	if s.Remove {
		return nil
	}
	return &s.Condition
}

// Plan is what to do with one target now: no steps when its conditions are as they should be.
type Plan struct {
	Steps []Step
	// Verdicts by condition type, those that change nothing among them.
	Verdicts map[string]Verdict
	// RequeueAt is when a verdict changes without news; zero when none does.
	RequeueAt time.Time
}

// PlanTarget plans the conditions of one target.
func PlanTarget(in Input, now time.Time) Plan {
	plan := Plan{Verdicts: map[string]Verdict{}}
	for _, conditionType := range sets.List(sets.KeySet(in.Results)) {
		plan.planCondition(&in, conditionType, now)
	}
	for _, conditionType := range sets.List(sets.New(in.Remove...)) {
		previous := Find(in.Target, conditionType)
		if _, wanted := in.Results[conditionType]; !previous.WrittenByChecks() || wanted {
			continue
		}
		if _, backsOff := plan.checkConflict(&in, conditionType, previous, nil); !backsOff {
			plan.Steps = append(plan.Steps, Step{Condition: *previous, Previous: previous.Status, Remove: true})
		}
	}
	return plan
}

func (p *Plan) planCondition(in *Input, conditionType string, now time.Time) {
	layout := Layout{Shape: cmp.Or(in.Shapes[conditionType], in.Shape), Unsupported: in.Unsupported}
	previous := Find(in.Target, conditionType)
	past := previous.Past()
	next := func(v Verdict) (condition Condition, writes, rewrites bool) {
		condition, writes = Next(previous, conditionType, v, layout, in.Target.GetGeneration(), now)
		rewrites, backsOff := p.checkConflict(in, conditionType, previous, &condition)
		return condition, writes && !backsOff, rewrites
	}
	verdict := Aggregate(in.Results[conditionType], past, now)
	if verdict.InDoubt() {
		verdict.Message += in.resetHint()
	}
	condition, writes, rewrites := next(verdict)
	// What was False before an Unknown turns nothing: else a moment in which checks can't be made would count all that were False for long.
	turns := verdict.Status == False && (!past.Failed || past.Doubted)
	consulted := turns && !past.New && !rewrites && in.AllowFalse != nil
	held := consulted && !in.AllowFalse(conditionType, past.Doubted)
	if held {
		verdict = inDoubt(verdict, past)
		verdict.Message += in.resetHint()
		condition, writes, _ = next(verdict)
	}
	p.Verdicts[conditionType] = verdict
	p.RequeueAt = Earlier(p.RequeueAt, verdict.RequeueAt)
	if writes {
		p.Steps = append(p.Steps, Step{Condition: condition, Shape: layout.Shape, Previous: previous.status(), Held: held, Counted: consulted && !held})
	}
}

func (in *Input) resetHint() string {
	if in.ResetHint == nil {
		return ""
	}
	return in.ResetHint()
}

// checkConflict asks whether somebody else wrote what is to be replaced.
func (p *Plan) checkConflict(in *Input, conditionType string, found, next *Condition) (rewrites, backsOff bool) {
	if in.CheckConflict == nil {
		return false, false
	}
	rewrites, until := in.CheckConflict(conditionType, found, next)
	if backsOff = !until.IsZero(); backsOff {
		p.RequeueAt = Earlier(p.RequeueAt, until)
	}
	return rewrites, backsOff
}

// Earlier is the first of two times, of which zero is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// inDoubt is Unknown, because True would be as unproven as False.
func inDoubt(v Verdict, past History) Verdict {
	past.Doubted = false // the reason says so
	v.Status, v.Reason, v.History = Unknown, ReasonInDoubt, past
	v.Message = inDoubtPrefix + v.Message
	return v
}

// InDoubt says whether the checks said False when they were asked last, and weren't trusted. Of none, it is false.
func (c *Condition) InDoubt() bool { return c != nil && c.Reason == ReasonInDoubt }

func (c *Condition) status() Status {
	if c == nil {
		return ""
	}
	return c.Status
}
