package probe

import (
	"maps"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// A pass of a target's owner: Scaling says what is to be planned from, and AtRest that there is nothing to do. Else the dependents
// are read (Looked), PlanScaling says what to write, and what was done is told (Planned).

// downHolds is how long a decision to scale down is acted upon. Runs may be hours apart, and what holds a target back may let
// go long after it.
const downHolds = time.Minute

// Confirmed says whether the run that Want is from is so late that replicas may be taken upon it. Else another must say the
// same first.
func (in *Scaling) Confirmed() bool { return in.Now.Sub(in.Tick) <= downHolds }

// Want is where a target's dependents are to be scaled, by its latest run and what its config may do. A decision that is
// stale begins nothing.
func (s *State) Want(may lifecycle.State, now time.Time) (want Direction, withdrawn bool) {
	switch {
	case may.IsWithdrawn():
		return Up, true
	case now.After(s.Until), may.IsFrozen(), may.HealsOnly() && s.Direction == Down:
		return Hold, false
	default:
		return s.Direction, false
	}
}

// Scaling is what a plan is made from. It has no Objects while some may have changed or weren't read yet.
func (t *Target) Scaling(may lifecycle.State, hibernated bool, now, server time.Time) Scaling {
	in := Scaling{Config: t.Config, Hibernated: hibernated, Flow: t.Flow, Tick: t.State.At, Now: now, Server: server}
	in.Want, in.Withdrawn = t.State.Want(may, now)
	if !may.IsFrozen() {
		in.Former = t.Former
	}
	in.Objects = []Object{}
	for ref := range in.Refs() {
		o, known := t.Objects[ref]
		if !known || t.Stale {
			in.Objects = nil
			return in
		}
		in.Objects = append(in.Objects, o)
	}
	if in.Want == Down {
		in.Episode = Episode(in.Config, in.Objects, t.Protection, now)
	}
	return in
}

// AtRest says whether there is nothing to do for a target.
func (t *Target) AtRest(in *Scaling) bool {
	switch {
	case in.Objects == nil || len(in.Former) > 0:
		return false
	case in.Withdrawn:
		return t.Restored && len(t.Left) == 0
	case in.Want == Up:
		return !t.MayOwe() && len(t.Flow.Raised) == 0
	}
	return in.Want == Hold
}

// Rested ends a flow: nothing is to be scaled now.
type Rested struct{}

func (Rested) next(t *Target) Actions {
	told := t.Held.Reason != "" || len(t.Findings) > 0
	t.Flow, t.Held, t.Findings = Flow{}, Permit{}, nil
	if !t.MayOwe() {
		t.Protection = Protection{}
	}
	return Actions{Tell: told}
}

// Looked are objects that were read for a Scaling: its Refs, one for one.
type Looked struct {
	In      Scaling
	Objects []Object
	// Half: some that the config names couldn't be read, and nothing is planned for it. Denied: each of them because Autohealer's
	// account may not.
	Half, Denied bool
}

func (e Looked) next(t *Target) (do Actions) {
	before, seen := t.Taken(), map[Ref]Object{}
	maps.Copy(seen, t.Objects)
	i := 0
	for ref := range e.In.Refs() {
		o := e.Objects[i]
		if was, known := t.Objects[ref]; o.Unseen && known { // from what was never recorded nothing was taken
			o.Record, o.RecordError, o.Unseen = was.Record, was.RecordError, was.Unseen
		}
		seen[ref], i = o, i+1
	}
	t.Former = slices.DeleteFunc(slices.Clone(t.Former), func(ref Ref) bool {
		o, known := seen[ref]
		return known && !o.Owes(t.Config)
	})
	if !e.Half || e.Denied {
		do.Down = t.owes(seen)
	}
	for _, d := range e.In.Config.Dependents {
		switch was, known := t.Objects[d.Ref]; {
		case e.Half && known: // nothing is planned upon what was read now
			seen[d.Ref] = was
		case e.Half:
			delete(seen, d.Ref)
		}
	}
	t.Objects, t.Stale = t.concerns(seen), t.Stale && e.Half
	do.Tell = t.Taken() != before
	return do
}

// owes says whether something of the target counts as scaled down. What may not be seen must not use up the others' places.
func (t *Target) owes(objects map[Ref]Object) *bool {
	owes := len(t.Former) > 0
	for o := range maps.Values(objects) {
		owes = owes || o.Owes(t.Config) && (!o.Unseen || !o.Denied)
	}
	return &owes
}

// Taking counts objects as recorded of which a record is about to be written, until they are read again.
type Taking struct{ Acts []Act }

func (e Taking) next(t *Target) Actions {
	before, objects := t.Taken(), maps.Clone(t.Objects)
	for _, act := range e.Acts {
		if o, known := objects[act.Ref]; known && act.Step == Take {
			o.Record = act.Record
			objects[act.Ref] = o
		}
	}
	t.Objects = objects
	return Actions{Tell: t.Taken() != before}
}

// Doubted is a write that failed, and may have been done all the same. The objects are read again before anything is said of them.
type Doubted struct{}

func (Doubted) next(t *Target) Actions {
	t.Stale, t.Restored = true, false
	return Actions{Tell: true}
}

// Planned is a plan that was carried out, or, where it isn't allowed, is held back but for what is never.
type Planned struct {
	In   Scaling
	Plan Plan
	Held Permit
}

func (e Planned) next(t *Target) (do Actions) {
	told, restored := t.Held.Reason == e.Held.Reason && sameFindings(t.Findings, e.Plan.Findings), t.Restored
	t.Held, t.Findings, t.Left = e.Held, e.Plan.Findings, e.Plan.Left
	if e.Held.Allowed {
		t.Flow = e.Plan.Flow
	} else if t.Known() { // the place that it took under the cap for what it didn't take is free again
		do.Down = t.owes(t.Objects)
	}
	if e.Plan.Done && len(e.Plan.Acts) == 0 {
		t.Flow = Flow{}
	}
	t.Protection = e.protection(t.Protection)
	t.Restored = e.In.Withdrawn && e.Plan.Done && e.covers(t)
	do.Tell = !told || t.Restored != restored
	return do
}

// protection is what is known of the one that is going on. What begins once something was given back is another.
func (e *Planned) protection(was Protection) Protection {
	switch {
	case e.In.Want == Down:
		return Protection{Since: e.In.Episode}
	case e.Held.Allowed && e.In.Want == Up && e.Plan.Own > 0:
		return Protection{Over: true}
	}
	return was
}

// covers says whether the plan is for all that may have to be given back: what was found or named since isn't in it.
func (e *Planned) covers(t *Target) bool {
	return t.Config == e.In.Config && !slices.ContainsFunc(t.Former, func(ref Ref) bool { return !slices.Contains(e.In.Former, ref) })
}

func sameFindings(a, b []Finding) bool {
	return slices.EqualFunc(a, b, func(a, b Finding) bool { return a.Ref == b.Ref && a.Reason == b.Reason })
}

// Harmful says whether replicas are taken.
func (p *Plan) Harmful() bool {
	return slices.ContainsFunc(p.Acts, func(a Act) bool { return a.Step == Take || a.Step == Lower })
}

// Hold leaves out all acts but those that are never held back: on objects that the config doesn't name.
func (p *Plan) Hold() { p.Acts, p.Own = p.Acts[p.Own:], 0 }

const (
	// soonestLook and latestLook bound how soon a flow that isn't done is looked at: nothing tells that an object reached its
	// scale.
	soonestLook = 500 * time.Millisecond
	latestLook  = 5 * time.Second
	// stuckLook is how soon is looked again at what nothing can be done about here: someone must give a right, or take an
	// annotation away.
	stuckLook = 10 * time.Second
)

// NextLook is when to look again once a plan was carried out; zero when the next run will tell.
func (p *Plan) NextLook(in *Scaling) time.Time {
	waits := !p.Flow.StoppedAt.IsZero() || in.Want == Hold && !in.Withdrawn // for the next run
	switch {
	case p.givesBack:
		return in.Now.Add(soonestLook)
	case !waits && (p.Own > 0 || !p.Done && !p.Unread):
		return p.Look(in.Now)
	case p.Unread, p.stuck, len(p.Left) > 0:
		return in.Now.Add(stuckLook)
	}
	return time.Time{}
}

// Look is when to look at a flow again that isn't done. The longer a level takes, the more seldom: when many targets wait at
// once, most likely because the API server or its controllers are slow, they must not make these slower still.
func (p *Plan) Look(now time.Time) time.Time {
	pause := soonestLook
	if !p.Flow.Started.IsZero() && len(p.Acts) == 0 {
		pause = min(max(pause, now.Sub(p.Flow.Started)/2), latestLook)
	}
	at := now.Add(pause)
	if !p.LookAgain.IsZero() && p.LookAgain.Before(at) {
		return p.LookAgain
	}
	return at
}

func (p *Plan) lookAgain(at time.Time) {
	if p.LookAgain.IsZero() || at.Before(p.LookAgain) {
		p.LookAgain = at
	}
}
