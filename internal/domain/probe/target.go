// Package probe decides what follows from probing one API server from two sides: from inside the network of its control
// plane, and from where its nodes are. It is pure: time comes in as an argument, and nothing here dials, reads or writes.
//
// A Target is a namespace that a config probes. All that happens to it is an Event, and Next(event) gives the Target after it with
// what follows:
//
//	Followed, Recalled   its config is new, changed or doesn't select it any more; a record of what was taken was found
//	Supplied, Halted     its probes run with these Secrets, or can't; they don't run
//	Ran                  a run of its probes ended: State counts it, and has a Direction: Hold, Down or Up
//	Looked               its dependents were read
//	Taking, Doubted      replicas are about to be taken; nobody knows whether a write was done
//	Planned, Rested      what was done about its dependents; nothing is to be done
//	Ended                its namespace is gone
//
// In between its owner makes a pass: Scaling gathers what is known, NothingToDo says that there is nothing to do; else the dependents are
// read, PlanScaling says what to write to each of them, and the Fleet, which is all targets, says whether this one may be scaled now.
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
	Config     *Config
	Deselected bool
	// Credentials is what the probes run with, and State what their runs since ValidFrom add up to.
	Credentials Credentials
	State       State
	ValidFrom   time.Time
	// ProvenMark is the Mark of the external kubeconfig that worked last, as far as is known; "" when none did.
	ProvenMark string

	// Objects are the dependents as they were read last; one that isn't among them may have a record. Stale: others may have written
	// to them since. Former are those that the config doesn't name any more, and that may have a record.
	Objects map[Ref]Object
	Stale   bool
	Removed []Ref
	// Flow is how far the scaling came, and Protection what is known of the one that is going on.
	Flow       Flow
	Protection Protection
	// Permit says what holds the target back, Findings what is in the way of single dependents, and Left which of them keep a record
	// although everything is to be given back.
	Permit               Permit
	Findings, Unrestored []Finding
	// Restored: nothing that was taken is left to give back.
	Restored bool
}

// Credentials is what a target's probes run with.
type Credentials struct {
	// Config whose Secrets they are; nil while none are wanted.
	Config *Config
	// Internal and External tell whether a kubeconfig changed.
	Internal, External Version
	// Unusable says why a Secret can't be used, since then; no Class when both can.
	Unusable      Outcome
	UnusableSince time.Time
	// ReadAt is when they were read. Doubted: the API server didn't take the credentials since.
	ReadAt   time.Time
	Rejected bool
}

// Version tells whether a kubeconfig changed: a Secret may be written without that.
type Version [sha256.Size]byte

// VersionOf a kubeconfig.
func VersionOf(kubeconfig []byte) Version { return sha256.Sum256(kubeconfig) }

// Mark is what a status keeps of a version: enough to tell it from another, and nothing of the kubeconfig.
func (v Version) Mark() string { return hex.EncodeToString(v[:8]) }

// Secrets are read again after a while, and sooner when one can't be used or the API server doesn't take its credentials. Before anything
// is scaled down they are read in any case.
const secretsTTL, brokenSecretsTTL, rejectedSecretsTTL = 10 * time.Minute, 15 * time.Second, 5 * time.Second

// NextRead is when a config's Secrets are to be read again.
func (s *Credentials) NextRead(c *Config) time.Time {
	switch {
	case s.Config != c:
		return time.Time{}
	case s.Unusable.Class != "":
		return s.ReadAt.Add(brokenSecretsTTL)
	case s.Rejected:
		return s.ReadAt.Add(rejectedSecretsTTL)
	}
	return s.ReadAt.Add(secretsTTL)
}

// Usable says whether probes run.
func (s *Credentials) Usable() bool { return s.Config != nil && s.Unusable.Class == "" }

// Event is something that happens to a target.
type Event interface{ next(t *Target) Actions }

// Actions are what follows from an event.
type Actions struct {
	// Reconcile: the target is to be looked at. Tell: its config's status tells something else now.
	Reconcile, UpdateStatus bool
	// RunCounted, Unprobed and Gone are for the Fleet. Down says whether something is scaled down; nil when that isn't known anew.
	RunCounted, Unprobed, Gone bool
	Down                       *bool
}

// Next is the target after an event, and what follows from it.
func (t Target) Next(e Event) (Target, Actions) {
	do := e.next(&t)
	return t, do
}

// Key names the target.
func (t *Target) Key() TargetKey { return TargetKey{Config: t.Config.UID, Namespace: t.Namespace} }

// relevantObjects leaves those objects that may have to be scaled.
func (t *Target) relevantObjects(objects map[Ref]Object) map[Ref]Object {
	maps.DeleteFunc(objects, func(ref Ref, _ Object) bool { return !t.Config.Names(ref) && !slices.Contains(t.Removed, ref) })
	return objects
}

// Names says whether the config names an object.
func (c *Config) Names(ref Ref) bool {
	return slices.ContainsFunc(c.Dependents, func(d Dependent) bool { return d.Ref == ref })
}

// reset drops what runs found so far, and those that are going on: they say nothing about what is probed from now on.
func (t *Target) reset(since time.Time) { t.State, t.ValidFrom = State{}, since }

// KubeconfigProven says whether the external kubeconfig that is probed with has worked since it was written. One that never did tells nothing of
// the way that the nodes go: a name that is mistaken fails like a network that is down.
func (t *Target) KubeconfigProven() bool {
	return t.Credentials.Usable() && t.ProvenMark == t.Credentials.External.Mark()
}

// ObjectsKnown says whether all objects that the config names were read since it named them, and are as they were then.
func (t *Target) ObjectsKnown() bool {
	return !t.Stale && !slices.ContainsFunc(t.Config.Dependents, func(d Dependent) bool { _, known := t.Objects[d.Ref]; return !known })
}

// ScaledDown says whether something is known to be scaled down.
func (t *Target) ScaledDown() bool {
	for o := range maps.Values(t.Objects) {
		if o.mayHaveRecord() {
			return true
		}
	}
	return false
}

// MayBeScaledDown says whether something may have to be given back.
func (t *Target) MayBeScaledDown() bool {
	return !t.ObjectsKnown() || len(t.Removed) > 0 || t.ScaledDown()
}

// unfinished says whether something is remembered of a scaling that the latest run may have ended.
func (t *Target) unfinished() bool {
	return t.Permit.Reason != "" || len(t.Findings) > 0 || t.Flow.Direction != Hold || t.Protection != Protection{} && !t.MayBeScaledDown()
}

// KeepsRecord says whether an object keeps its record although all that can be given back is.
func (t *Target) KeepsRecord(ref Ref) bool {
	return t.Restored && slices.ContainsFunc(t.Unrestored, func(f Finding) bool { return f.Ref == ref })
}

// Removable says whether the target can be dropped: the config doesn't ask for it, and it has back what was taken.
func (t *Target) Removable() bool { return t.Deselected && t.Restored }

// A pass of a target's owner: Scaling says what is to be planned from, and NothingToDo that there is nothing to do. Else the dependents
// are read (Looked), PlanScaling says what to write, and what was done is told (Planned).

// Scaling is what a plan is made from. It has no Objects while some may have changed or weren't read yet.
func (t *Target) Scaling(may lifecycle.State, hibernated bool, now, server time.Time) Scaling {
	in := Scaling{Config: t.Config, Hibernated: hibernated, Flow: t.Flow, DecidedAt: t.State.At, Now: now, ServerTime: server}
	in.Want, in.Withdrawn = t.State.Want(may, now)
	if !may.IsFrozen() {
		in.Removed = t.Removed
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
		in.ProtectionSince = ProtectionStart(in.Config, in.Objects, t.Protection, now)
	}
	return in
}

// NothingToDo says whether there is nothing to do for a target.
func (t *Target) NothingToDo(in *Scaling) bool {
	switch {
	case in.Objects == nil || len(in.Removed) > 0:
		return false
	case in.Withdrawn:
		return t.Restored && len(t.Unrestored) == 0
	case in.Want == Up:
		return !t.MayBeScaledDown() && len(t.Flow.ScaledUp) == 0
	}
	return in.Want == Hold
}

// hasScaledDown says whether something of the target counts as scaled down. What may not be seen must not use up the others' places.
func (t *Target) hasScaledDown(objects map[Ref]Object) *bool {
	owes := len(t.Removed) > 0
	for o := range maps.Values(objects) {
		owes = owes || o.MayNeedRestore(t.Config) && (!o.Unseen || !o.Denied)
	}
	return &owes
}
