// Package probe decides what to do with the dependents of an API server that is probed from two sides: from inside the network of its
// control plane (internal), and from where its nodes are (external). It is pure: time is an argument, and nothing here dials, reads or
// writes.
//
// A Target is a namespace that a config probes. Everything that happens to it is an Event; Next(event) returns the Target after it, and
// the Actions that follow:
//
//	ConfigAssigned, RecordFound         its config is new, changed or deselects it; an object has a record of the config
//	CredentialsRead, ProbesStopped      its probes run with these Secrets, or can't; they don't run
//	RunEnded                            a run of its probes ended
//	DependentsRead                      its dependents were read
//	ScaleDownStarting, WriteUncertain   replicas are about to be set to 0; a write may or may not have been done
//	PlanApplied, NothingToScale         a plan was carried out, or held back; there is nothing to scale
//	NamespaceGone                       its namespace is gone
//
// A run leads to a Direction (State.After):
//
//	internal   external, leases     Direction
//	fails      not probed           Hold
//	succeeds   fail repeatedly      Down: dependents are scaled to 0, level by level
//	succeeds   succeed for a while  Up: they get their replicas back
//	anything else, stale, unknown   Hold
//
// Begin reading at Target and its events (events.go), then State.After, then PlanScaling (flow.go). A pass of a target's owner gathers
// what is known (Target.Scaling), ends if there is NothingToDo, else has the dependents read, plans what to write to each of them
// (PlanScaling), and asks the Fleet, which is all targets, whether this one may be scaled now (AcquireScaleDown, AcquireScaleUp).
package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// Target is the state of a namespace that a config probes. One owner applies events to it; all other readers have a copy, since nothing
// that it holds is changed in place.
type Target struct {
	Namespace string
	// Config as it was read last. Deselected: it doesn't select the namespace any more.
	Config     *Config
	Deselected bool
	// Credentials is what the probes run with, and State what their runs since ValidFrom add up to.
	Credentials Credentials
	State       State
	ValidFrom   time.Time
	// ProvenMark is the Mark of the external kubeconfig that worked last, as far as is known; "" when none did.
	ProvenMark string

	// Objects are the dependents as they were read last; one that isn't among them may have a record. Stale: others may have written
	// to them since. Removed are objects that the config doesn't name any more, and that may
	// have a record.
	Objects map[Ref]Object
	Stale   bool
	Removed []Ref
	// Flow is how far the scaling came, and Protection what is known of the one that is going on.
	Flow       Flow
	Protection Protection
	// Permit says what holds the target back, Findings what blocks single dependents, and Unrestored which of them keep a record
	// although all replicas are to be restored.
	Permit               Permit
	Findings, Unrestored []Finding
	// Restored: all dependents have their replicas back.
	Restored bool
}

// Credentials is what a target's probes run with.
type Credentials struct {
	// Config whose Secrets they are; nil while none are wanted.
	Config *Config
	// Internal and External are the versions of the kubeconfigs.
	Internal, External Version
	// Unusable says why a Secret can't be used, since then; no Class when both can.
	Unusable      Outcome
	UnusableSince time.Time
	// ReadAt is when they were read. Rejected: the API server has rejected the credentials since.
	ReadAt   time.Time
	Rejected bool
}

// Version is the digest of a kubeconfig, by which a change is seen: a Secret may be written without that.
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
	// Reconcile: the target is to be reconciled. UpdateStatus: its config's status is out of date.
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

// KubeconfigProven says whether the external kubeconfig that is probed with has worked since it was written. One that never did says nothing about
// the path of the nodes: a mistyped server name fails like a network that is down.
func (t *Target) KubeconfigProven() bool {
	return t.Credentials.Usable() && t.ProvenMark == t.Credentials.External.Mark()
}

// ObjectsKnown says whether all objects that the config names were read since it named them, and are as they were then.
func (t *Target) ObjectsKnown() bool {
	return !t.Stale && !slices.ContainsFunc(t.Config.Dependents, func(d Dependent) bool { _, known := t.Objects[d.Ref]; return !known })
}

// ScaledDown says whether a dependent has a record, or may have: it isn't read.
func (t *Target) ScaledDown() bool {
	for o := range maps.Values(t.Objects) {
		if o.mayHaveRecord() {
			return true
		}
	}
	return false
}

// MayHaveScaledDown says whether something may be scaled down for the config: it is, or that isn't known.
func (t *Target) MayHaveScaledDown() bool {
	return !t.ObjectsKnown() || len(t.Removed) > 0 || t.ScaledDown()
}

// unfinished says whether something is remembered of a scaling that the latest run may have ended.
func (t *Target) unfinished() bool {
	return t.Permit.Reason != "" || len(t.Findings) > 0 || t.Flow.Direction != Hold || t.Protection != Protection{} && !t.MayHaveScaledDown()
}

// KeepsRecord says whether an object keeps its record although all that can be restored is.
func (t *Target) KeepsRecord(ref Ref) bool {
	return t.Restored && slices.ContainsFunc(t.Unrestored, func(f Finding) bool { return f.Ref == ref })
}

// Removable says whether the target can be removed: the config doesn't select it, and its replicas are restored.
func (t *Target) Removable() bool { return t.Deselected && t.Restored }

// A pass of a target's owner: Scaling says what is to be planned from, and NothingToDo that there is nothing to do. Else the dependents
// are read (DependentsRead), PlanScaling says what to write, and PlanApplied takes in what was done.

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
		return !t.MayHaveScaledDown() && len(t.Flow.ScaledUp) == 0
	}
	return in.Want == Hold
}

// hasScaledDown says whether something of the target counts as scaled down. What may not be seen must not use up the others' places.
func (t *Target) hasScaledDown(objects map[Ref]Object) *bool {
	pending := len(t.Removed) > 0
	for o := range maps.Values(objects) {
		pending = pending || o.MayNeedRestore(t.Config) && (!o.Unseen || !o.Denied)
	}
	return &pending
}
