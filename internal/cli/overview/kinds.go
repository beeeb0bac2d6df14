package overview

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// rows tell of one policy what its kind has of its own; a kind without one has nothing.
var rows = map[string]func(client.Object, *Policy){
	"ConditionSet": conditionSet, "WeederConfig": weederConfig, "ProbeConfig": probeConfig, "OutlierPolicy": outlierPolicy, "HealthCheckRegistration": registration,
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

// policyOf is a row of a stored object.
func policyOf(kind string, o kinds.Object) Policy {
	conditions := o.GetConditions()
	p := Policy{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Outdated: o.GetObservedGeneration() != o.GetGeneration(),
		BreakerOpen: meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionBreakerOpen), Message: says(conditions),
		resource: strings.ToLower(kind) + "." + v1alpha1.GroupVersion.Group,
	}
	if accepted := meta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted); accepted != nil {
		p.Accepted = string(accepted.Status)
	}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		p.Ready, p.Reason = string(ready.Status), ready.Reason
	}
	if row := rows[kind]; row != nil {
		row(o, &p)
	}
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
