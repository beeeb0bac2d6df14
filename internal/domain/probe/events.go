package probe

import (
	"maps"
	"slices"
	"time"
)

// Followed is a config that is new or changed.
type Followed struct {
	Config   *Config
	Departed bool
	// Anew: the namespace is new, or there again, and nothing is known of its objects.
	Anew bool
}

func (e Followed) next(t *Target) Actions {
	former := slices.Clone(t.Former)
	for _, d := range t.Config.Dependents {
		if o, known := t.Objects[d.Ref]; (!known || o.recorded()) && !slices.Contains(former, d.Ref) {
			former = append(former, d.Ref)
		}
	}
	t.Former = slices.DeleteFunc(former, e.Config.Names)
	t.Restored = t.Restored && t.Config == e.Config && !e.Anew
	if t.Config.UID != e.Config.UID {
		t.State, t.Flow, t.Protection = State{}, Flow{}, Protection{}
	}
	if t.Config.UID != e.Config.UID || e.Anew {
		t.Objects = nil
	}
	t.Config, t.Departed = e.Config, e.Departed
	t.Objects = t.concerns(maps.Clone(t.Objects))
	return Actions{Look: true}
}

// Recalled is an object with a record of the config.
type Recalled struct{ Ref Ref }

func (e Recalled) next(t *Target) Actions {
	if !t.Config.Names(e.Ref) && !slices.Contains(t.Former, e.Ref) {
		t.Former, t.Restored = append(slices.Clone(t.Former), e.Ref), false
	}
	return Actions{Look: true}
}

// Supplied are Secrets that were read, since then in use or found to be unusable. What other ones led to says nothing about what these
// lead to.
type Supplied struct {
	Supply
	Since time.Time
	// Proven is the Mark of the kubeconfig that had worked as a status tells; "" when it tells of none.
	Proven string
}

func (e Supplied) next(t *Target) Actions {
	was := t.Supply
	t.Supply = e.Supply
	if t.Proven == "" {
		t.Proven = e.Proven
	}
	if e.Unusable.Class == "" {
		changed := was.Internal != e.Internal || was.External != e.External
		if changed {
			t.reset(e.Since)
		}
		return Actions{Tell: changed || was.Unusable.Class != ""}
	}
	if t.Supply.UnusableSince = e.Since; was.Unusable.Class != "" {
		t.Supply.UnusableSince = was.UnusableSince
	}
	t.reset(e.Since)
	return Actions{Unprobed: true, Tell: was.Unusable != e.Unusable}
}

// Halted says that the probes don't run since then; what they counted is of the past.
type Halted struct{ Since time.Time }

func (e Halted) next(t *Target) Actions {
	ran := t.Supply.Config != nil
	t.Supply = Supply{}
	t.reset(e.Since)
	return Actions{Unprobed: true, Tell: ran}
}

// Ran is a run of the probes.
type Ran struct{ Run }

func (e Ran) next(t *Target) Actions {
	if e.Started.Before(t.ValidFrom) {
		return Actions{}
	}
	before := t.State
	t.State = before.After(t.Config, e.Run)
	t.Supply.Doubted = t.Supply.Doubted || e.doubts()
	proven := e.External != nil && e.External.Class == OK && !t.Works()
	if proven {
		t.Proven = t.Supply.External.Mark()
	}
	acts := t.State.Direction == Down || t.State.Direction == Up && t.MayOwe()
	return Actions{Ran: true, Look: proven || acts || t.Supply.Doubted || t.unfinished(), Tell: proven || t.State.tells(&before, t.Config)}
}

// doubts: the API server didn't take the credentials, or showed a certificate that they don't trust; they may have been rotated.
func (r *Run) doubts() bool {
	return slices.ContainsFunc(r.outcomes(), func(o Outcome) bool {
		return o.Class == Unauthorized || o.Class == Forbidden || o.Class == TLS || o.Class == Untrusted
	})
}

// tells says whether a status tells something else than before.
func (s *State) tells(before *State, c *Config) bool {
	counts := func(a, b Counts) bool {
		return a.Successes != b.Successes || a.Errors != b.Errors || a.LastError != b.LastError
	}
	return counts(before.Internal, s.Internal) || counts(before.External, s.External) || counts(before.Leases, s.Leases) ||
		before.Vouched != s.Vouched || before.UnhealthySince.IsZero() != s.UnhealthySince.IsZero() || before.HealthySince.IsZero() != s.HealthySince.IsZero() ||
		before.InternalUndetermined(c).IsZero() != s.InternalUndetermined(c).IsZero() ||
		before.ExternalUndetermined(c).IsZero() != s.ExternalUndetermined(c).IsZero() ||
		before.OuterUnhealthy(c) != s.OuterUnhealthy(c) || before.LeasesTell(c) != s.LeasesTell(c)
}

// Ended says that the namespace is gone or being deleted since then, and with it everything that was scaled there.
type Ended struct{ Since time.Time }

func (e Ended) next(t *Target) Actions {
	t.reset(e.Since)
	t.Supply, t.Former, t.Left, t.Restored = Supply{}, nil, nil, true
	t.Objects, t.Stale = map[Ref]Object{}, false
	for _, d := range t.Config.Dependents {
		t.Objects[d.Ref] = Object{Missing: true}
	}
	return Actions{Gone: true, Tell: true}
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
