package health

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// ReasonInDoubt: the checks say False, for too many targets at once to be believed.
const ReasonInDoubt = "HealthCheckInDoubt"

const notBelieved = "not believed, because too many turn False at once: "

// Input is everything that the conditions of one target depend on.
type Input struct {
	// Target as it was seen.
	Target *unstructured.Unstructured
	// Shape of its conditions, but for those types that Shapes has.
	Shape  Shape
	Shapes map[string]Shape
	// Lacks is what isn't written, since the target can't have it.
	Lacks Lacks
	// Results of all checks of all registrations, by condition type.
	Results map[string][]Result
	// Remove are condition types that are to go; those with results stay, and so does what isn't of the form of health checks.
	Remove []string
	// MayFail is asked when a condition would turn False that isn't so yet, and told whether it is in doubt already: false holds that
	// back, see Flips. Nil holds nothing.
	MayFail func(conditionType string, doubted bool) bool
	// HowToBelieve ends the message of what is held back: what people may do about it. Nil says nothing.
	HowToBelieve func() string
}

// Step is what to do with one condition.
type Step struct {
	Condition Condition
	Shape     Shape
	// Before is the status on the target; "" when there was no such condition.
	Before Status
	// Remove the condition instead of writing it.
	Remove bool
	// Held: the checks say False, and the breaker doesn't believe it. Counted: it was asked, and does.
	Held, Counted bool
}

// TurnsFalse says whether the step writes a condition False that isn't so yet.
func (s Step) TurnsFalse() bool {
	return !s.Remove && s.Condition.Status == False && s.Before != False
}

// Plan is what to do with one target now: no steps when its conditions are as they should be.
type Plan struct {
	Steps []Step
	// Verdicts by condition type, those that change nothing among them.
	Verdicts map[string]Verdict
	// LookAgain is when a verdict changes without news; zero when none does.
	LookAgain time.Time
}

// PlanTarget plans the conditions of one target.
func PlanTarget(in Input, now time.Time) Plan {
	plan := Plan{Verdicts: map[string]Verdict{}}
	for _, conditionType := range sets.List(sets.KeySet(in.Results)) {
		plan.judge(&in, conditionType, now)
	}
	for _, conditionType := range slices.Sorted(slices.Values(in.Remove)) {
		previous := Find(in.Target, conditionType)
		if _, wanted := in.Results[conditionType]; previous.ByChecks() && !wanted {
			plan.Steps = append(plan.Steps, Step{Condition: *previous, Before: previous.Status, Remove: true})
		}
	}
	return plan
}

func (p *Plan) judge(in *Input, conditionType string, now time.Time) {
	previous := Find(in.Target, conditionType)
	verdict := in.Lacks.leaveOut(Aggregate(in.Results[conditionType], previous.Past(), now))
	// What was False before an Unknown turns nothing: else a moment in which checks can't be made would count all that were False for long.
	turns := verdict.Status == False && (!previous.Past().Failed || previous.InDoubt())
	asked := turns && in.MayFail != nil
	held := asked && !in.MayFail(conditionType, previous.InDoubt())
	if held {
		verdict = inDoubt(verdict, previous)
		if in.HowToBelieve != nil {
			verdict.Message += in.HowToBelieve()
		}
	}
	p.Verdicts[conditionType] = verdict
	p.LookAgain = Sooner(p.LookAgain, verdict.LookAgain)
	shape := cmp.Or(in.Shapes[conditionType], in.Shape)
	if next, changed := Next(previous, conditionType, verdict, shape, in.Lacks.generation(in.Target), now); changed {
		p.Steps = append(p.Steps, Step{Condition: in.Lacks.undated(next), Shape: shape, Before: previous.status(), Held: held, Counted: asked && !held})
	}
}

// Sooner is the first of two times, of which zero is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// inDoubt is Unknown, because True would be as unproven as False.
func inDoubt(v Verdict, previous *Condition) Verdict {
	v.Status, v.Reason, v.History = Unknown, ReasonInDoubt, previous.Past()
	v.Message = notBelieved + v.Message
	return v
}

// InDoubt says whether the checks said False when they were asked last, and weren't believed. Of none, it is false.
func (c *Condition) InDoubt() bool { return c != nil && c.Reason == ReasonInDoubt }

func (c *Condition) status() Status {
	if c == nil {
		return ""
	}
	return c.Status
}
