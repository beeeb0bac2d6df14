package condition

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Precedence says among which sets of a node the highest effect wins.
type Precedence string

const (
	// PrecedenceKey: among sets with the same key; different keys all apply, because pods tolerate by key.
	PrecedenceKey Precedence = "Key"
	// PrecedenceNode: among all sets of the node.
	PrecedenceNode Precedence = "Node"
)

// Claimant is a set with its state.
type Claimant struct {
	*Set
	State lifecycle.State
	// HoldReason says why the set may not add taints; "" when it may.
	HoldReason Reason
}

// Reason is a short CamelCase word for why something was done or not done.
type Reason string

// Reasons of steps and holds.
const (
	Matched            Reason = "ConditionsMatched"
	EvictAfterOver     Reason = "EvictAfterElapsed"
	Recovered          Reason = "ConditionsRecovered"
	NoLongerSelected   Reason = "NodeNoLongerSelected"
	KeyChanged         Reason = "TaintKeyChanged"
	EffectChanged      Reason = "EffectChanged"
	ConditionsChanged  Reason = "ConditionsChanged"
	NoLongerHeld       Reason = "NoLongerHeld"
	PolicyWithdrawn    Reason = "PolicyDeletedOrObserving"
	RecordInvalid      Reason = "RecordNotOurs"
	Restored           Reason = "PolicyRestored"
	TaintRestored      Reason = "TaintWasRemoved"
	HeldByLimit        Reason = "LimitReached"
	HeldByEvictLimit   Reason = "EvictLimitReached"
	HeldByEvictPace    Reason = "EvictionPace"
	HeldByMaxNodes     Reason = "MaxNodesReached"
	HeldByBreaker      Reason = "BreakerOpen"
	HeldByRules        Reason = "NotAdmitted"
	HeldByPause        Reason = "Paused"
	HeldByClock        Reason = "ClockStepped"
	HeldByControlPlane Reason = "OtherControlPlaneNodeTainted"
	HeldByForeign      Reason = "ForeignTaint"
	HeldByIntolerance  Reason = "SystemPodDoesNotTolerate"
	HeldByFlapping     Reason = "Flapping"
	HeldByRecord       Reason = "RecordUnreadable"
	HeldByRemoval      Reason = "TaintKeepsBeingRemoved"
	HeldByDoubt        Reason = "LiveReadFailed"
	HeldByAnnotation   Reason = "HoldUntil"
	HeldByPrecedence   Reason = "Outranked"
)

// Verb is what a step does to the node's taint.
type Verb string

// Verbs, from the harmful to the harmless.
const (
	Taint      Verb = "Taint"
	Escalate   Verb = "Escalate"
	Deescalate Verb = "Deescalate"
	Untaint    Verb = "Untaint"
	// Repair changes the record only.
	Repair Verb = "Repair"
)

// Step is one set's part in a write.
type Step struct {
	Verb       Verb
	Reason     Reason
	Set        types.UID
	SetName    string
	Generation int64
	Key        string
	From, To   corev1.TaintEffect
	// Trigger is the transition that the step answers; with set, generation and node it names the act.
	Trigger time.Time
	// Due is when the step could first be taken; zero when that isn't known.
	Due time.Time
}

// Harmful says whether the step takes something from the node's pods.
func (s Step) Harmful() bool { return s.Verb == Taint || s.Verb == Escalate }

// Hold is an act that a set would do and doesn't.
type Hold struct {
	Set     types.UID
	Reason  Reason
	Message string
	// At is when the match's `for` expired, which is the node's place in the queue.
	At time.Time
	// queue is the limit that it queues for, "" when it queues for none.
	queue string
}

// Plan is what to do with one node now. The zero value does nothing.
type Plan struct {
	Node *Node
	// Taints and Owned are what the node should carry. They say something only when Steps isn't empty.
	Taints []corev1.Taint
	Owned  Ownership
	Steps  []Step
	Holds  []Hold
	// Frozen are the steps that would undo something if not everything were frozen.
	Frozen []Step
	// NeedsEvidence: an eviction is due and must be judged on live state first. There are no steps then.
	NeedsEvidence bool
	// Orphans are UIDs in the record whose set isn't known.
	Orphans map[types.UID]string
	// RequeueAt is when something may change without news; zero when nothing is pending.
	RequeueAt time.Time
	// recalls of evictions that it knows of.
	recalls int
}

// Harmful says whether some step is.
func (p *Plan) Harmful() bool {
	for _, s := range p.Steps {
		if s.Harmful() {
			return true
		}
	}
	return false
}

func evicts(t OwnedTaint) bool { return t.Effect == corev1.TaintEffectNoExecute }

// Eviction is the one that the plan begins; zero when it begins none.
func (p *Plan) Eviction() (a limit.Act) {
	begins := slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Harmful() && s.To == corev1.TaintEffectNoExecute })
	if !begins || slices.ContainsFunc(p.Node.Owned.Taints, evicts) {
		return a
	}
	a = limit.Act{UID: p.Node.UID, Name: p.Node.Name, Zone: p.Node.Zone}
	for _, t := range p.Owned.Taints {
		if t.EvictSince != nil {
			a.Began = timing.Later(a.Began, t.EvictSince.Time)
		}
	}
	return a
}

func (p *Plan) requeueAt(t time.Time) {
	if !t.IsZero() {
		p.RequeueAt = timing.Earlier(p.RequeueAt, t)
	}
}

// Gate says whether a limit lets one more node through.
type Gate struct {
	Reason Reason // "" lets through
	// Message has the limit in numbers.
	Message string
	// At is when time alone may open it; zero when only events can.
	At    time.Time
	queue string
}

// Closed says that the gate lets nothing through.
func (g Gate) Closed() bool { return g.Reason != "" }

// Cap is a limit that is checked before an act.
type Cap string

const (
	// CapTainted applies to a node's first taint that repels pods (NoSchedule, NoExecute).
	CapTainted Cap = "Tainted"
	// CapEvicting applies to its first NoExecute.
	CapEvicting Cap = "Evicting"
	// CapControlPlane applies to a control-plane node's first taint.
	CapControlPlane Cap = "ControlPlane"
	// CapMaxNodes is the set's own, before a node's first taint by it.
	CapMaxNodes Cap = "Own"
)

// Headroom says what a limit leaves for a node that a set asks for, where `for` of the longest-waiting match expired then.
// nil means no limit.
type Headroom func(of Cap, c Claimant, expired time.Time) Gate

// Evidence is what was read live of the node's pods just before an eviction.
type Evidence struct {
	SystemPods []ecosystem.SystemPod
	// NotRead: the pods were not asked for yet.
	NotRead bool
	// Unknown says why nothing may evict: its pods, or who was evicted before, could not be read.
	Unknown string
	// Unconfirmed are sets whose admission could not be confirmed live, and why; then they do nothing new.
	Unconfirmed map[types.UID]string
}

// Input is everything that a plan for one node depends on.
type Input struct {
	Node *Node
	// Claimants are the sets that match the node or have an entry in its record, the oldest first.
	Claimants []Claimant
	At        timing.Moment
	// ActsFrom is until when nothing new is done because our clock stepped.
	ActsFrom time.Time
	// Paused is why no set does anything new; "" when they may.
	Paused string
	// Frozen: nothing is undone, either.
	Frozen     bool
	Precedence Precedence
	// Declared says whether a ConditionSet ever declared this key.
	Declared func(key string) bool
	// Withdrawn says whether a record's set that isn't known is confirmed to be gone.
	Withdrawn func(types.UID) bool
	// Undone says when a set's taint was last taken off the node, zero when it wasn't; nil where nobody knows.
	Undone func(set types.UID, key string) time.Time
	// Tainted gives when sets of a name tainted the node, also where its record no longer has it; nil where that is unknown.
	Tainted  func(set string) []PastTaint
	Headroom Headroom
	Evidence *Evidence
}
