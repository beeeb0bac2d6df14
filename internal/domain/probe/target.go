package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// Target is all that a process knows of a namespace that a config probes. It has one owner, whom everybody tells what happens; whoever
// else reads it has a copy: nothing that it holds is changed in place.
type Target struct {
	Namespace string
	// Config as it was read last. Departed: it doesn't select the namespace any more.
	Config   *Config
	Departed bool
	// Supply is what the probes run with, and State what their runs since ValidFrom add up to.
	Supply    Supply
	State     State
	ValidFrom time.Time
	// Proven is the Mark of the external kubeconfig that worked last, as far as is known; "" when none did.
	Proven string

	// Objects are the dependents as they were read last; one that isn't among them may have a record. Stale: others may have written
	// to them since. Former are those that the config doesn't name any more, and that may have a record.
	Objects map[Ref]Object
	Stale   bool
	Former  []Ref
	// Flow is how far the scaling came, and Protection what is known of the one that is going on.
	Flow       Flow
	Protection Protection
	// Held says what holds the target back, Findings what is in the way of single dependents, and Left which of them keep a record
	// although everything is to be given back.
	Held           Permit
	Findings, Left []Finding
	// Restored: nothing that was taken is left to give back.
	Restored bool
}

// Supply is what a target's probes run with.
type Supply struct {
	// Config whose Secrets they are; nil while none are wanted.
	Config *Config
	// Internal and External tell whether a kubeconfig changed.
	Internal, External Version
	// Unusable says why a Secret can't be used, since then; no Class when both can.
	Unusable      Outcome
	UnusableSince time.Time
	// ReadAt is when they were read. Doubted: the API server didn't take the credentials since.
	ReadAt  time.Time
	Doubted bool
}

// Version tells whether a kubeconfig changed: a Secret may be written without that.
type Version [sha256.Size]byte

// VersionOf a kubeconfig.
func VersionOf(kubeconfig []byte) Version { return sha256.Sum256(kubeconfig) }

// Mark is what a status keeps of a version: enough to tell it from another, and nothing of the kubeconfig.
func (v Version) Mark() string { return hex.EncodeToString(v[:8]) }

// Secrets are read again after a while, and sooner when one can't be used or the API server doesn't take its credentials. Before anything
// is scaled down they are read in any case.
const secretsKept, brokenSecretsKept, doubtedSecretsKept = 10 * time.Minute, 15 * time.Second, 5 * time.Second

// Due is when a config's Secrets are to be read again.
func (s *Supply) Due(c *Config) time.Time {
	switch {
	case s.Config != c:
		return time.Time{}
	case s.Unusable.Class != "":
		return s.ReadAt.Add(brokenSecretsKept)
	case s.Doubted:
		return s.ReadAt.Add(doubtedSecretsKept)
	}
	return s.ReadAt.Add(secretsKept)
}

// Probes says whether probes run.
func (s *Supply) Probes() bool { return s.Config != nil && s.Unusable.Class == "" }

// Event is something that happens to a target.
type Event interface{ next(t *Target) Actions }

// Actions are what follows from an event.
type Actions struct {
	// Look: the target is to be looked at. Tell: its config's status tells something else now.
	Look, Tell bool
	// Ran, Unprobed and Gone are for the Fleet. Down says whether something is scaled down; nil when that isn't known anew.
	Ran, Unprobed, Gone bool
	Down                *bool
}

// Next is the target after an event, and what follows from it.
func (t Target) Next(e Event) (Target, Actions) {
	do := e.next(&t)
	return t, do
}

// Key names the target.
func (t *Target) Key() TargetKey { return TargetKey{Config: t.Config.UID, Namespace: t.Namespace} }

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

// concerns leaves those objects that may have to be scaled.
func (t *Target) concerns(objects map[Ref]Object) map[Ref]Object {
	maps.DeleteFunc(objects, func(ref Ref, _ Object) bool { return !t.Config.Names(ref) && !slices.Contains(t.Former, ref) })
	return objects
}

// Names says whether the config names an object.
func (c *Config) Names(ref Ref) bool {
	return slices.ContainsFunc(c.Dependents, func(d Dependent) bool { return d.Ref == ref })
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

// reset drops what runs found so far, and those that are going on: they say nothing about what is probed from now on.
func (t *Target) reset(since time.Time) { t.State, t.ValidFrom = State{}, since }

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

// Works says whether the external kubeconfig that is probed with has worked since it was written. One that never did tells nothing of
// the way that the nodes go: a name that is mistaken fails like a network that is down.
func (t *Target) Works() bool { return t.Supply.Probes() && t.Proven == t.Supply.External.Mark() }

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

// Known says whether all objects that the config names were read since it named them, and are as they were then.
func (t *Target) Known() bool {
	return !t.Stale && !slices.ContainsFunc(t.Config.Dependents, func(d Dependent) bool { _, known := t.Objects[d.Ref]; return !known })
}

// Taken says whether something is known to be scaled down.
func (t *Target) Taken() bool {
	for o := range maps.Values(t.Objects) {
		if o.recorded() {
			return true
		}
	}
	return false
}

// MayOwe says whether something may have to be given back.
func (t *Target) MayOwe() bool { return !t.Known() || len(t.Former) > 0 || t.Taken() }

// unfinished says whether something is remembered of a scaling that the latest run may have ended.
func (t *Target) unfinished() bool {
	return t.Held.Reason != "" || len(t.Findings) > 0 || t.Flow.Direction != Hold || t.Protection != Protection{} && !t.MayOwe()
}

// Leaves says whether an object keeps its record although all that can be given back is.
func (t *Target) Leaves(ref Ref) bool {
	return t.Restored && slices.ContainsFunc(t.Left, func(f Finding) bool { return f.Ref == ref })
}

// Dismissed says whether the target can be dropped: the config doesn't ask for it, and it has back what was taken.
func (t *Target) Dismissed() bool { return t.Departed && t.Restored }

// A pass of a target's owner: Scaling says what is to be planned from, and AtRest that there is nothing to do. Else the dependents
// are read (Looked), PlanScaling says what to write, and what was done is told (Planned).

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
