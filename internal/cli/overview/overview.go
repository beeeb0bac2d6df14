// Package overview is what `kubectl autohealer status` shows: every policy, the limits and the manager, as the API server has
// them.
package overview

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// Overview is one look at a cluster.
type Overview struct {
	Manager  Manager  `json:"manager"`
	FrozenBy []string `json:"frozenBy,omitempty"`
	PausedBy []string `json:"pausedBy,omitempty"`
	Limits   []Limit  `json:"limits"`
	Policies []Policy `json:"policies"`
	// Held are the nodes that people ask to leave alone.
	Held []Held `json:"held,omitempty"`
	// Orphans are taints of ConditionSets that don't exist, which nobody takes off.
	Orphans []Orphan `json:"orphans,omitempty"`
	// BrokenRecords can't be read, so that nothing is done and nothing undone there.
	BrokenRecords []BrokenRecord `json:"brokenRecords,omitempty"`
	// Missing says what couldn't be read, and so isn't shown.
	Missing []string `json:"missing,omitempty"`
}

// Manager is what can be known of the manager from outside.
type Manager struct {
	// Leader is the replica that acts; "" when none does.
	Leader string `json:"leader,omitempty"`
	// Renewed is when it last said so.
	Renewed *metav1.Time `json:"renewed,omitempty"`
	// Leads: it said so recently enough.
	Leads bool `json:"leads"`
	// Doubt is what is wrong with the Lease that says so, if no manager wrote it like that.
	Doubt string `json:"doubt,omitempty"`
	// Unknown: whether one leads can't be read.
	Unknown bool `json:"unknown,omitempty"`
	// Replicas that run and are ready, of how many; -1 where there is no Deployment or it can't be read.
	Ready    int32 `json:"readyReplicas"`
	Replicas int32 `json:"replicas"`
}

// Limit is a limit over all policies, and how much of it is used.
type Limit struct {
	Name string `json:"name"`
	// Value as a Guardrail would have it, such as 10%.
	Value   string `json:"value"`
	Used    int    `json:"used"`
	Allowed int    `json:"allowed"`
	// Of is how many there are, where the limit is a share; 0 where it isn't.
	Of int `json:"of,omitempty"`
	// Unavailable are nodes that a share leaves out: cordoned, not Ready or tainted as leaving.
	Unavailable int `json:"unavailable,omitempty"`
}

// Orphan is a taint that counts under the limits and belongs to no policy.
type Orphan struct {
	// Object such as node/worker-7.
	Object string `json:"object"`
	// Taint as key:effect.
	Taint string `json:"taint"`
	// Policy is the ConditionSet that set it.
	Policy string `json:"policy"`
}

// BrokenRecord is a record that can't be read.
type BrokenRecord struct {
	// Object such as node/worker-7.
	Object string `json:"object"`
	// Mend says how people end it.
	Mend string `json:"mend"`
}

// Held is an object that people ask to leave alone for now.
type Held struct {
	// Object such as node/worker-7.
	Object string `json:"object"`
	// HoldUntil is its annotation as it was written.
	HoldUntil string `json:"holdUntil"`
	// Reason that was given, "" when none was.
	Reason string `json:"reason,omitempty"`
	// Fault says what is wrong with the annotation, "" when nothing is.
	Fault string `json:"fault,omitempty"`
}

// Policy is a row.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Accepted and Ready are the statuses of these conditions; "" before the first look.
	Accepted string `json:"accepted,omitempty"`
	Ready    string `json:"ready,omitempty"`
	// Reason of Ready.
	Reason string `json:"reason,omitempty"`
	// Acting tells in numbers what it does; HeldBack counts what it would do now and doesn't.
	Acting   string `json:"acting,omitempty"`
	HeldBack int64  `json:"heldBack"`
	// BreakerOpen: nothing new is done until someone resets it.
	BreakerOpen bool `json:"breakerOpen"`
	// Outdated: the status is of an older generation.
	Outdated bool `json:"outdated,omitempty"`
	// Message is the one that says most: why it is rejected or stalled, else of the breaker, the limit, or Ready.
	Message string `json:"message,omitempty"`

	resource string
}

// Ref is the policy as kubectl takes it: resource.group/name.
func (p Policy) Ref() string { return p.resource + "/" + p.Name }

// Short is the policy in a table, such as conditionset/kernel-deadlock.
func (p Policy) Short() string { return strings.ToLower(p.Kind) + "/" + p.Name }

// Healthy says that nothing needs attention: the rules admit the policy, it is ready, no breaker is open.
func (p Policy) Healthy() bool {
	return p.Accepted == "True" && p.Ready == "True" && !p.BreakerOpen && !p.Outdated
}

// Healthy says that nothing needs attention.
func (o *Overview) Healthy() bool {
	return o.Manager.Leads && len(o.FrozenBy) == 0 && len(o.Missing)+len(o.Orphans)+len(o.BrokenRecords) == 0 && !slices.ContainsFunc(o.Policies, func(p Policy) bool { return !p.Healthy() }) &&
		!slices.ContainsFunc(o.Held, func(h Held) bool { return h.Fault != "" })
}

// Differs says whether more than the manager's sign of life is another than before.
func (o *Overview) Differs(before *Overview) bool {
	if before == nil {
		return true
	}
	a, b := *o, *before
	a.Manager.Renewed, b.Manager.Renewed = nil, nil
	return !reflect.DeepEqual(a, b)
}

// age of a moment in words.
func age(t, now time.Time) string { return max(0, now.Sub(t)).Truncate(time.Second).String() + " ago" }

// addDetails adds what a kind has of its own; one that isn't here has nothing.
func (p *Policy) addDetails(policy client.Object) {
	switch o := policy.(type) {
	case *v1alpha1.ConditionSet:
		if n := o.Status.Nodes; n != nil {
			p.Acting, p.HeldBack = fmt.Sprintf("%d of %d nodes tainted", n.Tainted, n.Selected), int64(n.HeldBack)
		}
	case *v1alpha1.WeederConfig:
		spared := int64(0)
		for _, s := range o.Status.Skipped {
			spared += s.Count
		}
		p.Acting = fmt.Sprintf("%d windows open, %d pods deleted so far", o.Status.ActiveWindows, o.Status.Deleted)
		if spared > 0 {
			p.Acting += fmt.Sprintf(", %d spared", spared)
		}
	case *v1alpha1.ProbeConfig:
		if n := o.Status.Targets; n != nil {
			p.Acting = fmt.Sprintf("%d of %d targets scaled down", n.ScaledDown, n.Total)
		}
	case *v1alpha1.OutlierPolicy:
		p.Acting = fmt.Sprintf("%d clusters with %d hosts", o.Status.Clusters, o.Status.Hosts)
		if o.Status.Ejected != nil {
			p.Acting += fmt.Sprintf(", %d ejected", *o.Status.Ejected)
		}
	case *v1alpha1.HealthCheckRegistration:
		p.Acting = fmt.Sprintf("%d of %d targets healthy", o.Status.Healthy, o.Status.Targets)
	}
}

// policyOf is a row of a stored object.
func policyOf(kind string, o kinds.Object) Policy {
	conditions := o.GetConditions()
	p := Policy{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Outdated: o.GetObservedGeneration() != o.GetGeneration(),
		BreakerOpen: meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionBreakerOpen), Message: mainMessage(conditions),
		resource: strings.ToLower(kind) + "." + v1alpha1.GroupVersion.Group,
	}
	if accepted := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted); accepted != nil {
		p.Accepted = string(accepted.Status)
	}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		p.Ready, p.Reason = string(ready.Status), ready.Reason
	}
	p.addDetails(o)
	return p
}

// mainMessage is the message of the condition that matters most to who must do something.
func mainMessage(conditions []metav1.Condition) string {
	for _, t := range []string{
		v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionBreakerOpen, v1alpha1.ConditionLimitReached, v1alpha1.ConditionReady,
	} {
		if c := meta.FindStatusCondition(conditions, t); c != nil {
			return c.Message
		}
	}
	return "The manager has not looked at it yet."
}
