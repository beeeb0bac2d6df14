package overview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// Reader reads a cluster.
type Reader struct {
	Client client.Reader
	Clock  clock.PassiveClock
	// ManagerNamespace and ManagerName are those of the manager's Deployment and its Lease.
	ManagerNamespace, ManagerName string
	// Namespace narrows namespaced kinds; "" is all.
	Namespace string
	// Selector narrows policies by their labels.
	Selector labels.Selector
}

// Read looks once. What its user may not read is named as missing; an API server that doesn't answer is an error.
func (r Reader) Read(ctx context.Context) (*Overview, error) {
	o := &Overview{Manager: Manager{Ready: -1, Replicas: -1}, Limits: []Limit{}, Policies: []Policy{}}
	for _, step := range []struct {
		what string
		read func(context.Context, *Overview) error
	}{
		{"the manager's Lease", r.lease}, {"the manager's Deployment", r.deployment}, {"policies", r.policies}, {"Guardrails and limits", r.limits},
	} {
		if err := step.read(ctx, o); apierrors.IsForbidden(err) {
			o.Missing = append(o.Missing, fmt.Sprintf("%s can't be read: %s", step.what, err))
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", step.what, err)
		}
	}
	return o, nil
}

func (r Reader) lease(ctx context.Context, o *Overview) error {
	held := &coordinationv1.Lease{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.ManagerNamespace, Name: r.ManagerName}, held)
	o.Manager.Unknown = client.IgnoreNotFound(err) != nil
	if err != nil || held.Spec.RenewTime == nil {
		return client.IgnoreNotFound(err)
	}
	doubt := lease.Of(held.Spec, r.Clock.Now())
	o.Manager.Leader, o.Manager.Renewed = ptr.Deref(held.Spec.HolderIdentity, ""), &metav1.Time{Time: held.Spec.RenewTime.Time}
	o.Manager.Leads, o.Manager.Doubt = doubt == lease.None, doubt.Message(held.Spec)
	return nil
}

func (r Reader) deployment(ctx context.Context, o *Overview) error {
	d := &appsv1.Deployment{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.ManagerNamespace, Name: r.ManagerName}, d); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.Manager.Ready, o.Manager.Replicas = d.Status.ReadyReplicas, d.Status.Replicas
	return nil
}

func (r Reader) policies(ctx context.Context, o *Overview) error {
	for _, k := range kinds.Policies() {
		list := k.NewList()
		options := client.ListOptions{LabelSelector: r.Selector}
		if k.Namespaced {
			options.Namespace = r.Namespace
		}
		err := r.Client.List(ctx, list, &options)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			continue // not installed
		case apierrors.IsForbidden(err):
			o.Missing = append(o.Missing, fmt.Sprintf("objects of kind %s can't be read: %s", k.Name(), err))
			continue
		case err != nil:
			return err
		}
		var rows []Policy
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			rows = append(rows, policyOf(k.Name(), item.(kinds.Object)))
			return nil
		}); err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b Policy) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		o.Policies = append(o.Policies, rows...)
	}
	return nil
}

// limits counts what is used of them as the manager does, by the records on the nodes.
func (r Reader) limits(ctx context.Context, o *Overview) error {
	var guardrails v1alpha1.GuardrailList
	if err := r.Client.List(ctx, &guardrails); err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return err
	}
	declared := make([]guardrail.Declared, len(guardrails.Items))
	for i := range guardrails.Items {
		refused := meta.IsStatusConditionFalse(guardrails.Items[i].Status.Conditions, v1alpha1.ConditionAccepted)
		declared[i] = guardrail.Declared{Guardrail: &guardrails.Items[i], Refused: refused}
	}
	policy := guardrail.Merge(limit.Builtin(), declared)
	o.FrozenBy, o.PausedBy = policy.FrozenBy, policy.PausedBy
	if err := r.nodes(ctx, o, policy.Limits); err != nil {
		return err
	}
	if err := r.deletions(ctx, o, policy.Limits); err != nil {
		return err
	}
	return r.scaled(ctx, o, policy.Limits)
}

// scaled counts the targets that ProbeConfigs have scaled down, as their statuses tell.
func (r Reader) scaled(ctx context.Context, o *Overview, limits limit.Limits) error {
	var configs v1alpha1.ProbeConfigList
	if err := r.Client.List(ctx, &configs); meta.IsNoMatchError(err) {
		return nil // an older installation
	} else if err != nil {
		return err
	}
	used, probed := 0, 0
	for i := range configs.Items {
		if n := configs.Items[i].Status.Targets; n != nil {
			used, probed = used+int(n.ScaledDown), probed+int(n.Probed)
		}
	}
	if probed > 0 {
		o.Limits = append(o.Limits, Limit{Name: "maxScaledDownTargets", Value: limits.MaxScaledDownTargets.String(), Used: used, Allowed: limits.ScaledDownTargets(probed), Of: probed})
	}
	return nil
}

func (r Reader) nodes(ctx context.Context, o *Overview, limits limit.Limits) error {
	var nodes corev1.NodeList
	var sets v1alpha1.ConditionSetList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return err
	}
	if err := r.Client.List(ctx, &sets); err != nil {
		return err
	}
	at := timing.Moment{Now: r.Clock.Now()}
	fleet := condition.FleetOfRecords(nodes.Items, sets.Items, limits, at)
	for i := range nodes.Items {
		o.addHeld(&nodes.Items[i], at.Now)
	}
	for _, t := range fleet.Orphans() {
		o.Orphans = append(o.Orphans, Orphan{Object: "node/" + t.Node, Taint: t.Key + ":" + string(t.Effect), Policy: t.Name})
	}
	for _, b := range fleet.BrokenRecords() {
		o.BrokenRecords = append(o.BrokenRecords, BrokenRecord{Object: "node/" + b.Node, Mend: b.RepairSteps()})
	}
	use := fleet.Usage()
	ofNodes := func(name string, most limit.Cap, used int) Limit {
		return Limit{Name: name, Value: most.String(), Used: used, Allowed: min(use.Total+use.Unavailable, most.Of(use.Total)), Of: use.Total, Unavailable: use.Unavailable}
	}
	o.Limits = append(o.Limits, ofNodes("maxTaintedNodes", limits.MaxTaintedNodes, use.Tainted), ofNodes("maxEvictingNodes", limits.MaxEvictingNodes, use.Evicting))
	return nil
}

// deletions counts those of the last minute that the configs' statuses name, which is the last 20 of each.
func (r Reader) deletions(ctx context.Context, o *Overview, limits limit.Limits) error {
	var configs v1alpha1.WeederConfigList
	if err := r.Client.List(ctx, &configs); err != nil {
		return err
	}
	used := 0
	for i := range configs.Items {
		for _, d := range configs.Items[i].Status.RecentDeletions {
			if r.Clock.Since(d.Time.Time) < time.Minute {
				used++
			}
		}
	}
	most := limits.MaxPodDeletionsPerMinute
	o.Limits = append(o.Limits, Limit{Name: "maxPodDeletionsPerMinute", Value: fmt.Sprint(most), Used: used, Allowed: most})
	return nil
}

// addHeld adds a node that people ask to leave alone.
func (o *Overview) addHeld(node *corev1.Node, now time.Time) {
	if h := hold.Of(node.Annotations); h.Active(now, time.Time{}) {
		o.Held = append(o.Held, Held{Object: "node/" + node.Name, HoldUntil: h.Text, Reason: node.Annotations[v1alpha1.AnnotationHoldReason], Fault: h.Fault(now)})
	}
}
