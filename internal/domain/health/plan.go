package health

import (
	"cmp"
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
	// Contest is asked at each look, before what is found of a condition is replaced, or removed, see Contests.Ask. Nil replaces it.
	Contest func(conditionType string, found, next *Condition) (rewrites bool, until time.Time)
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

// Left is what a step leaves of the condition; nil for none.
func (s *Step) Left() *Condition {
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
	// LookAgain is when a verdict changes without news; zero when none does.
	LookAgain time.Time
}

// PlanTarget plans the conditions of one target.
func PlanTarget(in Input, now time.Time) Plan {
	plan := Plan{Verdicts: map[string]Verdict{}}
	for _, conditionType := range sets.List(sets.KeySet(in.Results)) {
		plan.judge(&in, conditionType, now)
	}
	for _, conditionType := range sets.List(sets.New(in.Remove...)) {
		previous := Find(in.Target, conditionType)
		if _, wanted := in.Results[conditionType]; !previous.ByChecks() || wanted {
			continue
		}
		if _, backsOff := plan.contest(&in, conditionType, previous, nil); !backsOff {
			plan.Steps = append(plan.Steps, Step{Condition: *previous, Before: previous.Status, Remove: true})
		}
	}
	return plan
}

func (p *Plan) judge(in *Input, conditionType string, now time.Time) {
	c := &judging{in: in, conditionType: conditionType, previous: Find(in.Target, conditionType), now: now}
	past := c.previous.Past()
	verdict := in.Lacks.leaveOut(Aggregate(in.Results[conditionType], past, now))
	if verdict.InDoubt() {
		verdict.Message += c.howToBelieve()
	}
	c.next(p, verdict)
	// What was False before an Unknown turns nothing: else a moment in which checks can't be made would count all that were False for long.
	turns := verdict.Status == False && (!past.Failed || past.Doubted)
	asked := turns && !past.New && !c.rewrites && in.MayFail != nil
	held := asked && !in.MayFail(conditionType, past.Doubted)
	if held {
		verdict = inDoubt(verdict, past)
		verdict.Message += c.howToBelieve()
		c.next(p, verdict)
	}
	p.Verdicts[conditionType] = verdict
	p.LookAgain = Sooner(p.LookAgain, verdict.LookAgain)
	if c.writes {
		p.Steps = append(p.Steps, Step{Condition: in.Lacks.undated(c.condition), Shape: c.shape(), Before: c.previous.status(), Held: held, Counted: asked && !held})
	}
}

// judging is what becomes of one condition.
type judging struct {
	in            *Input
	conditionType string
	previous      *Condition
	now           time.Time
	// condition that follows from the verdict; writes says whether it is to be written, rewrites what Contest says.
	condition        Condition
	writes, rewrites bool
}

func (c *judging) shape() Shape { return cmp.Or(c.in.Shapes[c.conditionType], c.in.Shape) }

func (c *judging) howToBelieve() string {
	if c.in.HowToBelieve == nil {
		return ""
	}
	return c.in.HowToBelieve()
}

func (c *judging) next(p *Plan, v Verdict) {
	c.condition, c.writes = Next(c.previous, c.conditionType, v, c.shape(), c.in.Lacks.generation(c.in.Target), c.now)
	var backsOff bool
	c.rewrites, backsOff = p.contest(c.in, c.conditionType, c.previous, &c.condition)
	c.writes = c.writes && !backsOff
}

// contest asks whether somebody else wrote what is to be replaced.
func (p *Plan) contest(in *Input, conditionType string, found, next *Condition) (rewrites, backsOff bool) {
	if in.Contest == nil {
		return false, false
	}
	rewrites, until := in.Contest(conditionType, found, next)
	if backsOff = !until.IsZero(); backsOff {
		p.LookAgain = Sooner(p.LookAgain, until)
	}
	return rewrites, backsOff
}

// Sooner is the first of two times, of which zero is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// inDoubt is Unknown, because True would be as unproven as False.
func inDoubt(v Verdict, past History) Verdict {
	past.Doubted = false // the reason says so
	v.Status, v.Reason, v.History = Unknown, ReasonInDoubt, past
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
