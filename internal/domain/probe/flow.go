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
	// StoppedAt is the tick at which a level took too long: nothing more is done until the next tick.
	StoppedAt time.Time
	// Stopped says what took too long.
	Stopped []Finding
	// Raised are the objects that got their replicas back in this flow: their level is done when they have them.
	Raised map[Ref]int32
	// Passed are those that weren't scaled up while their level had time: the others are without them. Each has the tick at which
	// it was tried last; zero when it couldn't be read until now.
	Passed map[Ref]time.Time
}

// Act is what is to be written to one object, under the preconditions of its Step.
type Act struct {
	Ref  Ref
	Step Step
	// Object as it was read.
	Object Object
	// Record that Take writes; else the one that is there.
	Record *Record
}

// Scaling is what a flow is planned from.
type Scaling struct {
	Config *Config
	// Former are objects that Config doesn't name any more: what was taken from them is given back, whatever Want is.
	Former []Ref
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
	// Tick names the run that Want is from. A flow that stopped goes on with the next.
	Tick time.Time
	// Episode is when the protection began, see Episode.
	Episode time.Time
	Now     time.Time
	// Server is the API server's clock, zero while it isn't known.
	Server time.Time
}

// Plan is what to write now, all at once, and why the rest isn't written.
type Plan struct {
	Acts []Act
	// Own is how many of Acts, the first, are on objects that the config names.
	Own      int
	Findings []Finding
	// Done: everything is as the direction wants it, or left alone.
	Done bool
	// Left are those that keep their record although all should be undone: they may not be scaled, or can't be.
	Left []Finding
	// Unread: nothing is left to do now but for objects that can't be read, or weren't scaled up in time.
	Unread bool
	// LookAgain is when something may be due without any event; zero for never.
	LookAgain time.Time
	Flow      Flow

	// givesBack: something is given back to an object that the config doesn't name; stuck: it can't be read.
	givesBack, stuck bool
}

// Refs are the objects that the config names, and behind them the former ones.
func (in *Scaling) Refs() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for _, d := range in.Config.Dependents {
			if !yield(d.Ref) {
				return
			}
		}
		for _, ref := range in.Former {
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
	p.Own = len(p.Acts)
	for i, ref := range in.Former {
		s := in.giveBack(&p, ref, in.Objects[len(in.Config.Dependents)+i])
		p.givesBack, p.stuck = p.givesBack || s.Step != None, p.stuck || s.blocked
	}
	if in.Withdrawn {
		p.Done = p.Done && !p.givesBack && !p.stuck
	}
	return p
}

func (in *Scaling) plan() Plan {
	if in.Withdrawn {
		return in.withdraw()
	}
	if in.Want == Hold || in.Hibernated {
		return Plan{}
	}
	p := Plan{Flow: in.Flow}
	if p.Flow.Direction != in.Want {
		p.Flow = Flow{Direction: in.Want}
	}
	p.Flow.Raised, p.Flow.Passed = map[Ref]int32{}, map[Ref]time.Time{} // the argument's stay as they are
	maps.Copy(p.Flow.Raised, in.Flow.Raised)
	for _, d := range in.Config.Dependents { // an edit may have taken one out
		if tried, passed := in.Flow.Passed[d.Ref]; passed {
			p.Flow.Passed[d.Ref] = tried
		}
	}
	if !p.Flow.StoppedAt.IsZero() {
		if p.Flow.StoppedAt.Equal(in.Tick) {
			p.Findings = append(in.findings(p.Flow.Raised), p.Flow.Stopped...)
			return p
		}
		p.Flow.StoppedAt, p.Flow.Stopped, p.Flow.Started = time.Time{}, nil, time.Time{}
	}
	p.Findings = in.findings(p.Flow.Raised)
	in.retry(&p)
	for _, level := range in.levels() {
		if in.planLevel(&p, level) {
			return p
		}
	}
	p.Unread = len(p.Flow.Passed) > 0 && len(p.Acts) == 0
	p.Done, p.Flow = len(p.Flow.Passed) == 0, Flow{Direction: in.Want, Raised: p.Flow.Raised, Passed: p.Flow.Passed}
	return p
}

// place is a dependent's in the direction.
func (in *Scaling) place(i int) Place {
	if in.Want == Up {
		return in.Config.Dependents[i].Up
	}
	return in.Config.Dependents[i].Down
}

// levels ascend.
func (in *Scaling) levels() []int {
	var levels []int
	for i := range in.Config.Dependents {
		levels = append(levels, in.place(i).Level)
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
		_, passed := p.Flow.Passed[d.Ref]
		if in.place(i).Level == level && !passed && !in.verdict(i, p.Flow.Raised).settled {
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
		_, passed := p.Flow.Passed[in.Config.Dependents[i].Ref]
		return !passed
	}
	if !slices.ContainsFunc(open, waits) {
		return false
	}
	if len(p.Flow.Stopped) > 0 { // also what else was due waits: its level won't end
		p.Acts, p.Flow.StoppedAt, p.LookAgain = nil, in.Tick, time.Time{}
		p.Findings = append(p.Findings, p.Flow.Stopped...)
	}
	return true
}

func (in *Scaling) planObject(p *Plan, i int) {
	ref, place, s := in.Config.Dependents[i].Ref, in.place(i), in.verdict(i, p.Flow.Raised)
	begin := p.Flow.Started.Add(place.Delay)
	end := begin.Add(place.Timeout)
	switch {
	case in.Want == Up && !in.Now.Before(end): // what one is in the way of, the others must not wait for
		in.pass(p, i, s)
	case !in.Now.Before(end):
		p.Flow.Stopped = append(p.Flow.Stopped, Finding{Ref: ref, Reason: TimedOut,
			Message: fmt.Sprintf("it is not scaled %s after %s; the levels after %d wait", in.Want, place.Timeout, place.Level)})
	case s.Step == None: // it takes its time, or can't be read just now
		p.lookAgain(end)
	case in.Now.Before(begin):
		p.lookAgain(begin)
	default:
		in.planAct(p, i, s.Step)
		p.lookAgain(end)
	}
}

func (in *Scaling) planAct(p *Plan, i int, step Step) {
	p.Acts = append(p.Acts, in.act(in.Config.Dependents[i].Ref, in.Objects[i], step))
	if step == Raise {
		p.Flow.Raised[in.Config.Dependents[i].Ref] = in.Objects[i].Record.Replicas
	}
}

// pass lets the others go on without an object. One that can't be read has its reason already.
func (in *Scaling) pass(p *Plan, i int, s Verdict) {
	if s.blocked {
		p.Flow.Passed[in.Config.Dependents[i].Ref] = time.Time{}
		return
	}
	p.Flow.Passed[in.Config.Dependents[i].Ref] = in.Tick
	in.tellPassed(p, i)
}

func (in *Scaling) tellPassed(p *Plan, i int) {
	p.Findings = append(p.Findings, Finding{Ref: in.Config.Dependents[i].Ref, Reason: TimedOut,
		Message: fmt.Sprintf("it is not scaled %s after %s; the others don't wait for it", in.Want, in.place(i).Timeout)})
}

// retry plans for what the flow went past: each is tried once a tick, for as long as it takes. What has its replicas back and
// doesn't run them has nothing to wait for.
func (in *Scaling) retry(p *Plan) {
	for i, d := range in.Config.Dependents {
		tried, passed := p.Flow.Passed[d.Ref]
		if !passed {
			continue
		}
		switch s := in.verdict(i, p.Flow.Raised); {
		case s.settled, s.Step == None && !s.blocked:
			delete(p.Flow.Passed, d.Ref)
			delete(p.Flow.Raised, d.Ref)
		case s.blocked:
		default:
			if !tried.IsZero() {
				in.tellPassed(p, i)
			}
			if !tried.Equal(in.Tick) {
				in.planAct(p, i, s.Step)
				p.Flow.Passed[d.Ref] = in.Tick
			}
		}
	}
}

func (in *Scaling) act(ref Ref, o Object, step Step) Act {
	a := Act{Ref: ref, Step: step, Object: o, Record: o.Record}
	if step == Take {
		a.Record = recordOf(in.Config, &o, in.Episode)
	}
	return a
}

// Harmful says whether replicas are taken.
func (p *Plan) Harmful() bool {
	return slices.ContainsFunc(p.Acts, func(a Act) bool { return a.Step == Take || a.Step == Lower })
}

// Hold leaves out all acts but those that are never held back: on objects that the config doesn't name.
func (p *Plan) Hold() { p.Acts, p.Own = p.Acts[p.Own:], 0 }
