package weeder

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// Reason is a short CamelCase word for why a pod isn't deleted.
type Reason string

// Reasons.
const (
	HeldByOwnerless  Reason = "NoController"
	HeldByMirror     Reason = "MirrorPod"
	HeldByBacking    Reason = "PodOfTheService"
	HeldByAutohealer Reason = "PodOfAutohealer"
	HeldByCycle      Reason = "DependencyCycle"
	HeldByAnnotation Reason = "HoldUntil"
	HeldByStart      Reason = "Starting"
	HeldByRules      Reason = "NotAdmitted"
	HeldByRights     Reason = "Forbidden"
	HeldByPause      Reason = "Paused"
	HeldByMode       Reason = "Observing"
	HeldByClock      Reason = "ClockStepped"
	HeldByDoubt      Reason = "FactsInDoubt"
	HeldByBudget     Reason = "MaxDeletionsPerWatch"
	HeldByRepeats    Reason = "MaxRepeatsPerOwner"
	HeldByCooldown   Reason = "Cooldown"
	HeldByLimit      Reason = "MaxPodDeletionsPerMinute"
	// HeldByDisruption is the API server's answer to an eviction.
	HeldByDisruption Reason = "PodDisruptionBudget"
)

// Hold is a deletion that a config would do and doesn't.
type Hold struct {
	Config  types.UID `json:"-"`
	Service string    `json:"-"`
	Reason  Reason    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// At is when time alone may end it; zero when only events can.
	At time.Time `json:"-"`
}

// Deletion is a pod's deletion for one Service's recovery. Config, Generation, Pod.UID and Trigger name the act.
type Deletion struct {
	Config     types.UID
	Key        types.NamespacedName // of the config
	Generation int64
	Service    string
	// Recovered is when the Service did, by our clock; Trigger is the Ready transition that it was known by, which is the
	// same for every process.
	Recovered, Trigger time.Time
	// Ends is when the window does, by our clock: later nothing may be asked.
	Ends  time.Time
	Evict bool
	// Before is when the pods were deleted, within an hour, that this one replaced one after the other.
	Before []time.Time
	Loop   CrashLoop
}

// Plan is what to do with one pod now. The zero value does nothing.
type Plan struct {
	// Pod as it was judged; its UID and ResourceVersion are the deletion's preconditions.
	Pod    Pod
	Delete *Deletion
	// Holds say, for each open window, why the pod isn't deleted. There are none when it is.
	Holds []Hold
	// RequeueAt is when something may change without news; zero when nothing is pending.
	RequeueAt time.Time
}

// Opening is an open window that selects a pod.
type Opening struct {
	Config *Config
	State  lifecycle.State
	Window Window
	// Backing: the pod is one of the recovered Service's own.
	Backing bool
	// Cycle is the path on which the recovery of a Service that the pod backs would come back to this one; "" when
	// there is none.
	Cycle string
}

// Window is the time after a Service's recovery in which its dependents are deleted.
type Window struct {
	Namespace, Service string
	// Opened by our clock; Ends a watchDuration later.
	Opened, Ends time.Time
	Trigger      time.Time
	// Deleted counts the pods deleted in it.
	Deleted int
	// LastDeletion is when the latest of them was; zero when there is none.
	LastDeletion time.Time
	// ClockAhead is by how much our clock, which these times are by, was ahead of the API server's when this process observed it.
	ClockAhead time.Duration
}

// Stored is one of the window's times by the API server's clock, as the status has it: the next process may run elsewhere.
func (w *Window) Stored(t time.Time) time.Time { return t.Add(-w.ClockAhead) }

func (w *Window) open(now time.Time) bool { return now.Before(w.Ends) }

// Input is everything that a plan for one pod depends on.
type Input struct {
	Pod *Pod
	// Openings are the open windows of configs that select the pod, the oldest config first.
	Openings []Opening
	// Autohealers: the pod is one of Autohealer's own.
	Autohealers bool
	// OwnerHold is the hold on the pod's workload; nil for none.
	OwnerHold *hold.Hold
	Past      Past
	// FreeAt is when the cluster-wide limit has a place for the pod; zero when it has now. Limit is its value.
	FreeAt time.Time
	Limit  int
	At     timing.Moment
	// ActsFrom is until when nothing is done because our clock stepped.
	ActsFrom time.Time
	// Doubt says why what is known can't be trusted just now, "" when it can.
	Doubt string
}

// PlanPod plans one pod: the first open window that may delete it does, else each says why it doesn't.
func PlanPod(in Input) Plan {
	plan := Plan{Pod: *in.Pod}
	if in.Pod.Terminating {
		return plan
	}
	for _, o := range in.Openings {
		loop := in.Pod.Loop(o.Config.IncludeInit)
		if loop.Container == "" || !in.At.Now.Before(o.Window.Ends) {
			continue
		}
		hold := in.firstHold(o, in.excluded, in.holdAnnotated, in.notPermitted, in.inDoubt, in.budgetSpent, in.repeatsSpent, in.limitReached)
		if hold.Reason == "" {
			return Plan{Pod: *in.Pod, Delete: &Deletion{
				Config: o.Config.UID, Key: o.Config.Key(), Generation: o.Config.Generation, Service: o.Window.Service,
				Recovered: o.Window.Opened, Trigger: o.Window.Trigger, Ends: o.Window.Ends,
				Evict: o.Config.Evict, Before: in.Past.Before, Loop: loop,
			}}
		}
		hold.Config, hold.Service = o.Config.UID, o.Window.Service
		plan.Holds = append(plan.Holds, hold)
		if again := hold.requeueAt(in.At.Now); !again.IsZero() && again.Before(o.Window.Ends) {
			plan.RequeueAt = timing.Earlier(plan.RequeueAt, again)
		}
	}
	return plan
}

// requeueAt is when the hold may have ended without any event of the pod's; zero when only such an event ends it. Which pods
// back a Service, and which Services depend on each other, changes by events of Services and of other configs.
func (h Hold) requeueAt(now time.Time) time.Time {
	if h.Reason == HeldByBacking || h.Reason == HeldByCycle {
		return now.Add(doubtRequeueAfter)
	}
	return h.At
}

// firstHold is the first of these checks that blocks the deletion; without a reason none does.
func (in *Input) firstHold(o Opening, checks ...func(Opening) Hold) Hold {
	for _, check := range checks {
		if h := check(o); h.Reason != "" {
			return h
		}
	}
	return Hold{}
}

func (in *Input) excluded(o Opening) Hold {
	switch {
	case in.Pod.Mirror || in.Pod.Controller.Kind == "Node":
		return Hold{Reason: HeldByMirror, Message: "it mirrors a static pod, which only the kubelet restarts"}
	case in.Pod.Controller.Kind == "":
		return Hold{Reason: HeldByOwnerless, Message: "no controller owns it, so nothing would replace it"}
	case o.Backing:
		return Hold{Reason: HeldByBacking, Message: fmt.Sprintf("it is one of Service %s's own pods", o.Window.Service)}
	case in.Autohealers:
		return Hold{Reason: HeldByAutohealer, Message: "it is one of Autohealer's own pods"}
	case o.Cycle != "":
		return Hold{Reason: HeldByCycle, Message: fmt.Sprintf("Services wait for each other (%s), and its deletion would set off the next", o.Cycle)}
	}
	return Hold{}
}

// holdAnnotated: people ask to leave the pod, or its workload, alone.
func (in *Input) holdAnnotated(Opening) Hold {
	for _, h := range []struct {
		*hold.Hold
		of string
	}{{in.Pod.Hold, "the pod"}, {in.OwnerHold, in.Pod.Workload().String()}} {
		if h.Active(in.At.Now, in.At.Server) {
			return Hold{Reason: HeldByAnnotation, Message: "on " + h.of + " " + h.Message(in.At.Now), At: h.RequeueAt(in.At.Now, in.At.Server)}
		}
	}
	return Hold{}
}

func (in *Input) notPermitted(o Opening) Hold {
	switch {
	case o.State == lifecycle.Refused:
		return Hold{Reason: HeldByRules, Message: "a rule refuses the WeederConfig; see its condition Accepted"}
	case o.State == lifecycle.Forbidden:
		return Hold{Reason: HeldByRights, Message: fmt.Sprintf("ServiceAccount %s may not delete pods in namespace %s", o.Config.Account, o.Config.Namespace)}
	case o.State == lifecycle.Paused:
		return Hold{Reason: HeldByPause, Message: "a Guardrail pauses new acts"}
	case o.State != lifecycle.Active:
		return Hold{Reason: HeldByStart, Message: "the rules haven't judged the WeederConfig yet"}
	case o.Config.Observe:
		return Hold{Reason: HeldByMode, Message: "mode is Observe"}
	}
	return Hold{}
}

const (
	// maxClockSkew is how far our clock and the API server's may be apart: deadlines come from both.
	maxClockSkew = 10 * time.Second
	// doubtRequeueAfter is the safety net for what no event of the pod's may end.
	doubtRequeueAfter = 5 * time.Second
)

func (in *Input) inDoubt(Opening) Hold {
	switch {
	case !in.At.Server.IsZero() && in.At.Server.Sub(in.At.Now).Abs() > maxClockSkew:
		return Hold{Reason: HeldByClock, At: in.At.Now.Add(doubtRequeueAfter),
			Message: fmt.Sprintf("the manager's clock and the API server's differ by more than %s", maxClockSkew)}
	case in.At.Now.Before(in.ActsFrom):
		return Hold{Reason: HeldByClock, Message: "the manager's clock stepped", At: in.ActsFrom}
	case in.Doubt != "":
		return Hold{Reason: HeldByDoubt, Message: in.Doubt, At: in.At.Now.Add(doubtRequeueAfter)}
	}
	return Hold{}
}

func (in *Input) budgetSpent(o Opening) Hold {
	if o.Window.Deleted < o.Config.MaxDeletions {
		return Hold{}
	}
	return Hold{Reason: HeldByBudget, Message: fmt.Sprintf("maxDeletionsPerWatch %d is spent since Service %s recovered", o.Config.MaxDeletions, o.Window.Service)}
}

// repeatsSpent holds back replacements: a pod that crash-loops again where its predecessor was deleted doesn't fail for want
// of the Service alone, and each deletion ends its back-off.
func (in *Input) repeatsSpent(o Opening) Hold {
	n, most, at := len(in.Past.Before), o.Config.MaxRepeats, in.Past.Last.Add(o.Config.Cooldown)
	switch {
	case n > most:
		return Hold{Reason: HeldByRepeats, At: in.Past.Before[n-most-1].Add(retention),
			Message: fmt.Sprintf("%d pods of %s that it replaced one after the other were deleted within an hour, maxRepeatsPerOwner is %d", n, in.Pod.Workload(), most)}
	case n > 0 && in.At.Now.Before(at):
		return Hold{Reason: HeldByCooldown, At: at, Message: fmt.Sprintf("the pod of %s that it replaced was deleted less than %s ago", in.Pod.Workload(), o.Config.Cooldown)}
	}
	return Hold{}
}

func (in *Input) limitReached(Opening) Hold {
	if in.FreeAt.IsZero() {
		return Hold{}
	}
	return Hold{Reason: HeldByLimit, At: in.FreeAt, Message: fmt.Sprintf("maxPodDeletionsPerMinute %d is spent, over all WeederConfigs", in.Limit)}
}
