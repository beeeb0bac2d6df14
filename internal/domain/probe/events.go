package probe

import (
	"maps"
	"slices"
	"time"
)

// ConfigAssigned is a config that is new or changed.
type ConfigAssigned struct {
	Config     *Config
	Deselected bool
	// NamespaceIsNew: the namespace is new, or there again, and nothing is known of its objects.
	NamespaceIsNew bool
}

func (e ConfigAssigned) next(t *Target) Actions {
	removed := slices.Clone(t.Removed)
	for _, d := range t.Config.Dependents {
		if o, known := t.Objects[d.Ref]; (!known || o.mayHaveRecord()) && !slices.Contains(removed, d.Ref) {
			removed = append(removed, d.Ref)
		}
	}
	t.Removed = slices.DeleteFunc(removed, e.Config.Names)
	t.Restored = t.Restored && t.Config == e.Config && !e.NamespaceIsNew
	if t.Config.UID != e.Config.UID {
		t.State, t.Flow, t.Protection = State{}, Flow{}, Protection{}
	}
	if t.Config.UID != e.Config.UID || e.NamespaceIsNew {
		t.Objects = nil
	}
	t.Config, t.Deselected = e.Config, e.Deselected
	t.Objects = t.relevantObjects(maps.Clone(t.Objects))
	return Actions{Reconcile: true}
}

// RecordFound is an object with a record of the config.
type RecordFound struct{ Ref Ref }

func (e RecordFound) next(t *Target) Actions {
	if !t.Config.Names(e.Ref) && !slices.Contains(t.Removed, e.Ref) {
		t.Removed, t.Restored = append(slices.Clone(t.Removed), e.Ref), false
	}
	return Actions{Reconcile: true}
}

// CredentialsRead are Secrets that were read, since then in use or found to be unusable. Results with other
// credentials say nothing about these.
type CredentialsRead struct {
	Credentials
	Since time.Time
	// ProvenMark is the Mark of the kubeconfig that had worked, from the status; "" for none.
	ProvenMark string
}

func (e CredentialsRead) next(t *Target) Actions {
	was := t.Credentials
	t.Credentials = e.Credentials
	if t.ProvenMark == "" {
		t.ProvenMark = e.ProvenMark
	}
	if e.Unusable.Class == "" {
		changed := was.Internal != e.Internal || was.External != e.External
		if changed {
			t.reset(e.Since)
		}
		return Actions{UpdateStatus: changed || was.Unusable.Class != ""}
	}
	if t.Credentials.UnusableSince = e.Since; was.Unusable.Class != "" {
		t.Credentials.UnusableSince = was.UnusableSince
	}
	t.reset(e.Since)
	return Actions{Unprobed: true, UpdateStatus: was.Unusable != e.Unusable}
}

// ProbesStopped says that the probes don't run since then; their counts are dropped.
type ProbesStopped struct{ Since time.Time }

func (e ProbesStopped) next(t *Target) Actions {
	ran := t.Credentials.Config != nil
	t.Credentials = Credentials{}
	t.reset(e.Since)
	return Actions{Unprobed: true, UpdateStatus: ran}
}

// RunEnded is a run of the probes.
type RunEnded struct{ Run }

func (e RunEnded) next(t *Target) Actions {
	if e.Started.Before(t.ValidFrom) {
		return Actions{}
	}
	before := t.State
	t.State = before.After(t.Config, e.Run)
	t.Credentials.Rejected = t.Credentials.Rejected || e.credentialsRejected()
	proven := e.External != nil && e.External.Class == OK && !t.KubeconfigProven()
	if proven {
		t.ProvenMark = t.Credentials.External.Mark()
	}
	acts := t.State.Direction == Down || t.State.Direction == Up && t.MayHaveScaledDown()
	return Actions{RunCounted: true, Reconcile: proven || acts || t.Credentials.Rejected || t.unfinished(), UpdateStatus: proven || t.State.changesStatus(&before, t.Config)}
}

// credentialsRejected: the API server didn't take the credentials, or showed a certificate that they don't trust; they may have been rotated.
func (r *Run) credentialsRejected() bool {
	return slices.ContainsFunc(r.outcomes(), func(o Outcome) bool {
		return o.Class == Unauthorized || o.Class == Forbidden || o.Class == TLS || o.Class == Untrusted
	})
}

// changesStatus says whether a status would differ from before.
func (s *State) changesStatus(before *State, c *Config) bool {
	counts := func(a, b Counts) bool {
		return a.Successes != b.Successes || a.Errors != b.Errors || a.LastError != b.LastError
	}
	return counts(before.Internal, s.Internal) || counts(before.External, s.External) || counts(before.Leases, s.Leases) ||
		before.Vouched != s.Vouched || before.UnhealthySince.IsZero() != s.UnhealthySince.IsZero() || before.HealthySince.IsZero() != s.HealthySince.IsZero() ||
		before.InternalUndetermined(c).IsZero() != s.InternalUndetermined(c).IsZero() ||
		before.ExternalUndetermined(c).IsZero() != s.ExternalUndetermined(c).IsZero() ||
		before.ExternalUnhealthy(c) != s.ExternalUnhealthy(c) || before.LeaseConditions(c) != s.LeaseConditions(c)
}

// NamespaceGone says that the namespace is gone or being deleted since then, and with it everything that was scaled there.
type NamespaceGone struct{ Since time.Time }

func (e NamespaceGone) next(t *Target) Actions {
	t.reset(e.Since)
	t.Credentials, t.Removed, t.Unrestored, t.Restored = Credentials{}, nil, nil, true
	t.Objects, t.Stale = map[Ref]Object{}, false
	for _, d := range t.Config.Dependents {
		t.Objects[d.Ref] = Object{Missing: true}
	}
	return Actions{Gone: true, UpdateStatus: true}
}

// NothingToScale ends a flow.
type NothingToScale struct{}

func (NothingToScale) next(t *Target) Actions {
	reported := t.Permit.Reason != "" || len(t.Findings) > 0
	t.Flow, t.Permit, t.Findings = Flow{}, Permit{}, nil
	if !t.MayHaveScaledDown() {
		t.Protection = Protection{}
	}
	return Actions{UpdateStatus: reported}
}

// DependentsRead are objects that were read for a Scaling: its Refs, one for one.
type DependentsRead struct {
	Scaling Scaling
	Objects []Object
	// Partial: some that the config names couldn't be read, and nothing is planned for it. Denied: each of them because Autohealer's
	// account may not.
	Partial, Denied bool
}

func (e DependentsRead) next(t *Target) (do Actions) {
	before, seen := t.ScaledDown(), map[Ref]Object{}
	maps.Copy(seen, t.Objects)
	i := 0
	for ref := range e.Scaling.Refs() {
		o := e.Objects[i]
		if was, known := t.Objects[ref]; o.Unseen && known { // from what was never recorded nothing was taken
			o.Record, o.RecordError, o.Unseen = was.Record, was.RecordError, was.Unseen
		}
		seen[ref], i = o, i+1
	}
	t.Removed = slices.DeleteFunc(slices.Clone(t.Removed), func(ref Ref) bool {
		o, known := seen[ref]
		return known && !o.MayNeedRestore(t.Config)
	})
	if !e.Partial || e.Denied {
		do.Down = t.hasScaledDown(seen)
	}
	for _, d := range e.Scaling.Config.Dependents {
		switch was, known := t.Objects[d.Ref]; {
		case e.Partial && known: // nothing is planned upon what was read now
			seen[d.Ref] = was
		case e.Partial:
			delete(seen, d.Ref)
		}
	}
	t.Objects, t.Stale = t.relevantObjects(seen), t.Stale && e.Partial
	do.UpdateStatus = t.ScaledDown() != before
	return do
}

// ScaleDownStarting counts objects as recorded of which a record is about to be written, until they are read again.
type ScaleDownStarting struct{ Acts []Act }

func (e ScaleDownStarting) next(t *Target) Actions {
	before, objects := t.ScaledDown(), maps.Clone(t.Objects)
	for _, act := range e.Acts {
		if o, known := objects[act.Ref]; known && act.Step == StepScaleDown {
			o.Record = act.Record
			objects[act.Ref] = o
		}
	}
	t.Objects = objects
	return Actions{UpdateStatus: t.ScaledDown() != before}
}

// WriteUncertain is a write that failed, and may have been done all the same. The objects are read again before anything is said of them.
type WriteUncertain struct{}

func (WriteUncertain) next(t *Target) Actions {
	t.Stale, t.Restored = true, false
	return Actions{UpdateStatus: true}
}

// PlanApplied is a plan that was carried out, or, where it isn't allowed, is held back but for objects that the config doesn't name.
type PlanApplied struct {
	Scaling Scaling
	Plan    Plan
	Permit  Permit
}

func (e PlanApplied) next(t *Target) (do Actions) {
	same, restored := t.Permit.Reason == e.Permit.Reason && sameFindings(t.Findings, e.Plan.Findings), t.Restored
	t.Permit, t.Findings, t.Unrestored = e.Permit, e.Plan.Findings, e.Plan.Unrestored
	if e.Permit.Allowed {
		t.Flow = e.Plan.Flow
	} else if t.ObjectsKnown() { // the slot under the limit that it didn't use is free again
		do.Down = t.hasScaledDown(t.Objects)
	}
	if e.Plan.Done && len(e.Plan.Acts) == 0 {
		t.Flow = Flow{}
	}
	t.Protection = e.protection(t.Protection)
	t.Restored = e.Scaling.Withdrawn && e.Plan.Done && e.coversAll(t)
	do.UpdateStatus = !same || t.Restored != restored
	return do
}

// protection is what is known of the current protection. One that begins once replicas were restored is another.
func (e *PlanApplied) protection(was Protection) Protection {
	switch {
	case e.Scaling.Want == Down:
		return Protection{Since: e.Scaling.ProtectionSince}
	case e.Permit.Allowed && e.Scaling.Want == Up && e.Plan.Named > 0:
		return Protection{Over: true}
	}
	return was
}

// coversAll says whether the plan is for all that may have to be given back: what was found or named since isn't in it.
func (e *PlanApplied) coversAll(t *Target) bool {
	return t.Config == e.Scaling.Config && !slices.ContainsFunc(t.Removed, func(ref Ref) bool { return !slices.Contains(e.Scaling.Removed, ref) })
}

func sameFindings(a, b []Finding) bool {
	return slices.EqualFunc(a, b, func(a, b Finding) bool { return a.Ref == b.Ref && a.Reason == b.Reason })
}
