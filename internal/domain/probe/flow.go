package probe

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// Flow is how far the scaling of a target came. It is only remembered, never stored: a new one begins at the first level
// that isn't done, by what the objects say.
type Flow struct {
	Direction Direction
	// Level that is being done, since Started; zero when none is.
	Level   int
	Started time.Time
	// StoppedAt is the run at which a level took too long: nothing more is done until the next run.
	StoppedAt time.Time
	// Stopped says what took too long.
	Stopped []Finding
	// ScaledUp are the objects that got their replicas back in this flow: their level is done when they have them.
	ScaledUp map[Ref]int32
	// Skipped are those that weren't scaled up while their level had time: the others are without them. Each has the run at which
	// it was tried last; zero when it couldn't be read until now.
	Skipped map[Ref]time.Time
}

// Act is what is to be written to one object, under the preconditions of its Step.
type Act struct {
	Ref  Ref
	Step Step
	// Object is the dependent as it was read.
	Object Object
	// Record that StepScaleDown writes; else the one that is on the object.
	Record *Record
}

// Scaling is what a flow is planned from.
type Scaling struct {
	Config *Config
	// Removed are objects that Config doesn't name any more: their replicas are restored, whatever Want is.
	Removed []Ref
	// Objects are those of Refs, one for one.
	Objects []Object
	// Want is where to. Hold ends a flow without undoing anything.
	Want Direction
	// Withdrawn: everything is undone, in no order and whatever is in the way: the config is deleted or only observes.
	Withdrawn bool
	// Hibernated: nothing may be scaled; records are removed when Withdrawn.
	Hibernated bool
	// Flow as the last plan left it.
	Flow Flow
	// DecidedAt names the run that Want is from. A flow that stopped goes on with the next.
	DecidedAt time.Time
	// ProtectionSince is when the protection began, see ProtectionStart.
	ProtectionSince time.Time
	Now             time.Time
	// ServerTime is the API server's clock, zero while it isn't known.
	ServerTime time.Time
}

// Plan is what to write now, all at once, and why the rest isn't written.
type Plan struct {
	Acts []Act
	// Named is how many of Acts, the first, are on objects that the config names.
	Named    int
	Findings []Finding
	// Done: everything is as the direction wants it, or left alone.
	Done bool
	// Unrestored are those that keep their record although all should be undone: they may not be scaled, or can't be.
	Unrestored []Finding
	// Blocked: nothing is left to do now but for objects that can't be read, or weren't scaled up in time.
	Blocked bool
	// RequeueAt is when something may be due without any event; zero for never.
	RequeueAt time.Time
	Flow      Flow

	// restoresRemoved: replicas are restored to an object that the config doesn't name; removedBlocked: it can't be read.
	restoresRemoved, removedBlocked bool
}

// Refs are the objects that the config names, and after them the removed ones.
func (in *Scaling) Refs() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for _, d := range in.Config.Dependents {
			if !yield(d.Ref) {
				return
			}
		}
		for _, ref := range in.Removed {
			if !yield(ref) {
				return
			}
		}
	}
}

// PlanScaling says what to write to a target's dependents now. It knows nothing but its argument: after a crash at any
// write, the same call with what is read then goes on where the crash was.
//
// A record is there one write before the replicas are taken, and one after they are given back. Who dies just then can't
// tell afterwards whether someone else scaled the object meanwhile: if to 0, it gets what the record says; if up, it is left alone
// until the outage is over.
func PlanScaling(in Scaling) Plan {
	p := in.plan()
	p.Named = len(p.Acts)
	for i, ref := range in.Removed {
		s := in.restore(&p, ref, in.Objects[len(in.Config.Dependents)+i])
		p.restoresRemoved, p.removedBlocked = p.restoresRemoved || s.Step != StepNone, p.removedBlocked || s.blocked
	}
	if in.Withdrawn {
		p.Done = p.Done && !p.restoresRemoved && !p.removedBlocked
	}
	return p
}

func (in *Scaling) plan() Plan {
	if in.Withdrawn {
		return in.restoreAll()
	}
	if in.Want == Hold || in.Hibernated {
		return Plan{}
	}
	p := Plan{Flow: in.Flow}
	if p.Flow.Direction != in.Want {
		p.Flow = Flow{Direction: in.Want}
	}
	p.Flow.ScaledUp, p.Flow.Skipped = map[Ref]int32{}, map[Ref]time.Time{} // the argument's stay as they are
	maps.Copy(p.Flow.ScaledUp, in.Flow.ScaledUp)
	for _, d := range in.Config.Dependents { // an edit may have taken one out
		if tried, passed := in.Flow.Skipped[d.Ref]; passed {
			p.Flow.Skipped[d.Ref] = tried
		}
	}
	if !p.Flow.StoppedAt.IsZero() {
		if p.Flow.StoppedAt.Equal(in.DecidedAt) {
			p.Findings = append(in.findings(p.Flow.ScaledUp), p.Flow.Stopped...)
			return p
		}
		p.Flow.StoppedAt, p.Flow.Stopped, p.Flow.Started = time.Time{}, nil, time.Time{}
	}
	p.Findings = in.findings(p.Flow.ScaledUp)
	in.retrySkipped(&p)
	for _, level := range in.levels() {
		if in.planLevel(&p, level) {
			return p
		}
	}
	p.Blocked = len(p.Flow.Skipped) > 0 && len(p.Acts) == 0
	p.Done, p.Flow = len(p.Flow.Skipped) == 0, Flow{Direction: in.Want, ScaledUp: p.Flow.ScaledUp, Skipped: p.Flow.Skipped}
	return p
}

// scaleParameters is a dependent's in the direction.
func (in *Scaling) scaleParameters(i int) ScaleParameters {
	if in.Want == Up {
		return in.Config.Dependents[i].ScaleUp
	}
	return in.Config.Dependents[i].ScaleDown
}

// levels ascend.
func (in *Scaling) levels() []int {
	var levels []int
	for i := range in.Config.Dependents {
		levels = append(levels, in.scaleParameters(i).Level)
	}
	slices.Sort(levels)
	return slices.Compact(levels)
}

func (in *Scaling) findings(raised map[Ref]int32) []Finding {
	var all []Finding
	for i, d := range in.Config.Dependents {
		if s := in.verdict(i, raised); s.Reason != "" {
			all = append(all, s.finding(d.Ref))
		}
	}
	return all
}

// planLevel plans one level; false when it is done.
func (in *Scaling) planLevel(p *Plan, level int) (busy bool) {
	var open []int
	for i, d := range in.Config.Dependents {
		_, passed := p.Flow.Skipped[d.Ref]
		if in.scaleParameters(i).Level == level && !passed && !in.verdict(i, p.Flow.ScaledUp).settled {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return false
	}
	if p.Flow.Started.IsZero() || p.Flow.Level != level {
		p.Flow.Level, p.Flow.Started = level, in.Now
	}
	for _, i := range open {
		in.planObject(p, i)
	}
	waits := func(i int) bool {
		_, passed := p.Flow.Skipped[in.Config.Dependents[i].Ref]
		return !passed
	}
	if !slices.ContainsFunc(open, waits) {
		return false
	}
	if len(p.Flow.Stopped) > 0 { // also what else was due waits: its level won't end
		p.Acts, p.Flow.StoppedAt, p.RequeueAt = nil, in.DecidedAt, time.Time{}
		p.Findings = append(p.Findings, p.Flow.Stopped...)
	}
	return true
}

func (in *Scaling) planObject(p *Plan, i int) {
	ref, parameters, s := in.Config.Dependents[i].Ref, in.scaleParameters(i), in.verdict(i, p.Flow.ScaledUp)
	begin := p.Flow.Started.Add(parameters.Delay)
	end := begin.Add(parameters.Timeout)
	switch {
	case in.Want == Up && !in.Now.Before(end): // what one is in the way of, the others must not wait for
		in.skip(p, i, s)
	case !in.Now.Before(end):
		p.Flow.Stopped = append(p.Flow.Stopped, Finding{Ref: ref, Reason: TimedOut,
			Message: fmt.Sprintf("it is not scaled %s after %s; the levels after %d wait", in.Want, parameters.Timeout, parameters.Level)})
	case s.Step == StepNone: // it takes its time, or can't be read just now
		p.requeueAt(end)
	case in.Now.Before(begin):
		p.requeueAt(begin)
	default:
		in.planAct(p, i, s.Step)
		p.requeueAt(end)
	}
}

func (in *Scaling) planAct(p *Plan, i int, step Step) {
	p.Acts = append(p.Acts, in.act(in.Config.Dependents[i].Ref, in.Objects[i], step))
	if step == StepScaleUp {
		p.Flow.ScaledUp[in.Config.Dependents[i].Ref] = in.Objects[i].Record.Replicas
	}
}

// skip lets the others go on without an object. One that can't be read has its reason already.
func (in *Scaling) skip(p *Plan, i int, s Verdict) {
	if s.blocked {
		p.Flow.Skipped[in.Config.Dependents[i].Ref] = time.Time{}
		return
	}
	p.Flow.Skipped[in.Config.Dependents[i].Ref] = in.DecidedAt
	in.reportSkipped(p, i)
}

func (in *Scaling) reportSkipped(p *Plan, i int) {
	p.Findings = append(p.Findings, Finding{Ref: in.Config.Dependents[i].Ref, Reason: TimedOut,
		Message: fmt.Sprintf("it is not scaled %s after %s; the others don't wait for it", in.Want, in.scaleParameters(i).Timeout)})
}

// retrySkipped plans for what the flow went past: each is tried once a run, for as long as it takes. What has its replicas back and
// doesn't run them has nothing to wait for.
func (in *Scaling) retrySkipped(p *Plan) {
	for i, d := range in.Config.Dependents {
		tried, passed := p.Flow.Skipped[d.Ref]
		if !passed {
			continue
		}
		switch s := in.verdict(i, p.Flow.ScaledUp); {
		case s.settled, s.Step == StepNone && !s.blocked:
			delete(p.Flow.Skipped, d.Ref)
			delete(p.Flow.ScaledUp, d.Ref)
		case s.blocked:
		default:
			if !tried.IsZero() {
				in.reportSkipped(p, i)
			}
			if !tried.Equal(in.DecidedAt) {
				in.planAct(p, i, s.Step)
				p.Flow.Skipped[d.Ref] = in.DecidedAt
			}
		}
	}
}

func (in *Scaling) act(ref Ref, o Object, step Step) Act {
	a := Act{Ref: ref, Step: step, Object: o, Record: o.Record}
	if step == StepScaleDown {
		a.Record = newRecord(in.Config, &o, in.ProtectionSince)
	}
	return a
}

// ScalesDown says whether replicas are taken.
func (p *Plan) ScalesDown() bool {
	return slices.ContainsFunc(p.Acts, func(a Act) bool { return a.Step == StepScaleDown || a.Step == StepScaleDownAgain })
}

// DropHeldActs leaves out all acts but those that are never held back: on objects that the config doesn't name.
func (p *Plan) DropHeldActs() { p.Acts, p.Named = p.Acts[p.Named:], 0 }
