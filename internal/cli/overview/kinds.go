package overview

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// kind is how the policies of a kind are read and told.
type kind struct {
	name       string
	namespaced bool
	list       func() client.ObjectList
	// row tells of one policy what its kind has of its own.
	row func(client.Object, *Policy)
	// conditions of its status, with the generation that this is of.
	conditions func(client.Object) ([]metav1.Condition, int64)
}

// kinds that act, in the order of the table.
var kinds = []kind{
	{
		name: "ConditionSet", list: func() client.ObjectList { return &v1alpha1.ConditionSetList{} }, row: conditionSet,
		conditions: func(o client.Object) ([]metav1.Condition, int64) {
			status := o.(*v1alpha1.ConditionSet).Status
			return status.Conditions, status.ObservedGeneration
		},
	},
	{
		name: "WeederConfig", namespaced: true, list: func() client.ObjectList { return &v1alpha1.WeederConfigList{} }, row: weederConfig,
		conditions: func(o client.Object) ([]metav1.Condition, int64) {
			status := o.(*v1alpha1.WeederConfig).Status
			return status.Conditions, status.ObservedGeneration
		},
	},
	{
		name: "ProbeConfig", namespaced: true, list: func() client.ObjectList { return &v1alpha1.ProbeConfigList{} }, row: probeConfig,
		conditions: func(o client.Object) ([]metav1.Condition, int64) {
			status := o.(*v1alpha1.ProbeConfig).Status
			return status.Conditions, status.ObservedGeneration
		},
	},
	{
		name: "OutlierPolicy", namespaced: true, list: func() client.ObjectList { return &v1alpha1.OutlierPolicyList{} }, row: outlierPolicy,
		conditions: func(o client.Object) ([]metav1.Condition, int64) {
			status := o.(*v1alpha1.OutlierPolicy).Status
			return status.Conditions, status.ObservedGeneration
		},
	},
	{
		name: "HealthCheckRegistration", list: func() client.ObjectList { return &v1alpha1.HealthCheckRegistrationList{} }, row: registration,
		conditions: func(o client.Object) ([]metav1.Condition, int64) {
			status := o.(*v1alpha1.HealthCheckRegistration).Status
			return status.Conditions, status.ObservedGeneration
		},
	},
}

func registration(o client.Object, p *Policy) {
	s := o.(*v1alpha1.HealthCheckRegistration).Status
	p.Acting = fmt.Sprintf("%d of %d targets healthy", s.Healthy, s.Targets)
}

func conditionSet(o client.Object, p *Policy) {
	if n := o.(*v1alpha1.ConditionSet).Status.Nodes; n != nil {
		p.Acting, p.HeldBack = fmt.Sprintf("%d of %d nodes tainted", n.Tainted, n.Selected), int64(n.HeldBack)
	}
}

func weederConfig(o client.Object, p *Policy) {
	wc := o.(*v1alpha1.WeederConfig)
	spared := int64(0)
	for _, s := range wc.Status.Skipped {
		spared += s.Count
	}
	p.Acting = fmt.Sprintf("%d windows open, %d pods deleted so far", wc.Status.ActiveWindows, wc.Status.Deleted)
	if spared > 0 {
		p.Acting += fmt.Sprintf(", %d spared", spared)
	}
}

func probeConfig(o client.Object, p *Policy) {
	if n := o.(*v1alpha1.ProbeConfig).Status.Targets; n != nil {
		p.Acting = fmt.Sprintf("%d of %d targets scaled down", n.ScaledDown, n.Total)
	}
}

func outlierPolicy(o client.Object, p *Policy) {
	status := o.(*v1alpha1.OutlierPolicy).Status
	p.Acting = fmt.Sprintf("%d clusters with %d hosts", status.Clusters, status.Hosts)
	if status.Ejected != nil {
		p.Acting += fmt.Sprintf(", %d ejected", *status.Ejected)
	}
}

// policy is a row of a stored object.
func (k kind) policy(o client.Object) Policy {
	p := Policy{
		Kind: k.name, Namespace: o.GetNamespace(), Name: o.GetName(),
		resource: strings.ToLower(k.name) + "." + v1alpha1.GroupVersion.Group,
	}
	conditions, observed := k.conditions(o)
	p.Outdated = observed != o.GetGeneration()
	accepted := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted)
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if accepted != nil {
		p.Accepted = string(accepted.Status)
	}
	if ready != nil {
		p.Ready, p.Reason = string(ready.Status), ready.Reason
	}
	p.BreakerOpen = meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionBreakerOpen)
	p.Message = says(conditions)
	k.row(o, &p)
	return p
}

// says is the message of the condition that matters most to who must do something.
func says(conditions []metav1.Condition) string {
	for _, t := range []string{
		v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionBreakerOpen, v1alpha1.ConditionLimitReached, v1alpha1.ConditionReady,
	} {
		if c := meta.FindStatusCondition(conditions, t); c != nil {
			return c.Message
		}
	}
	return "The manager has not looked at it yet."
}
