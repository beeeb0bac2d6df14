package snapshot

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// NodeView is how all ConditionSets stand to a node, and what the planner would do with it.
type NodeView struct {
	Node        string
	At          timing.Moment
	SetStatuses []condition.SetStatus
	Plan        condition.Plan
	// Explanations has, by UID, what the manager last said of sets that aren't ready.
	Explanations map[types.UID]string
	// Orphans are claims of sets that don't exist, or aren't known.
	Orphans []Orphan
	// Broken is the node's record, nil when it can be read.
	Broken *condition.BrokenRecord
	// Unknown says what isn't known that sets are planned by; nil when all is.
	Unknown error
}

// Orphan is a claim of a set that isn't there.
type Orphan struct {
	condition.OwnedTaint
	// Stays: no set declares its key, so that the manager leaves it.
	Stays bool
}

// ViewNodes plans the nodes of these names, as the controller does: all nodes are decided on, those that waited longest first,
// so that each place under a limit goes to whom the controller would give it. Unknown names are left out.
func (f *Facts) ViewNodes(names ...string) []NodeView {
	plans := map[string]condition.Plan{}
	for _, name := range f.fleet.QueueOrder(f.at) {
		plans[name], _ = f.fleet.Decide(name, f.at, &condition.Evidence{NotRead: true})
	}
	stay := f.fleet.Orphans()
	var views []NodeView
	for _, name := range names {
		plan, known := plans[name]
		if !known {
			continue
		}
		v := NodeView{Node: name, At: f.at, Plan: plan, SetStatuses: f.fleet.SetStatuses(name, f.at), Explanations: f.unready(), Unknown: f.snapshot.Covers("ConditionSet")}
		if b, is := f.fleet.BrokenRecord(name); is {
			v.Broken = &b
		}
		for _, t := range plan.Node.Owned.Taints {
			if !slices.ContainsFunc(v.SetStatuses, func(s condition.SetStatus) bool {
				return s.Set.UID == t.Set || s.Claim != nil && s.Claim.Set == t.Set && s.Claim.Key == t.Key
			}) {
				v.Orphans = append(v.Orphans, Orphan{t, slices.ContainsFunc(stay, func(o condition.Orphan) bool { return o.Node == name && o.Set == t.Set && o.Key == t.Key })})
			}
		}
		views = append(views, v)
	}
	return views
}

// unready are the messages of the sets that aren't ready, by UID.
func (f *Facts) unready() map[types.UID]string {
	messages := map[types.UID]string{}
	for _, cs := range allOf[v1alpha1.ConditionSet](f.snapshot.Objects) {
		if ready := meta.FindStatusCondition(cs.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			messages[cs.UID] = ready.Message
		}
	}
	return messages
}

// WeederView is what one stored WeederConfig would do.
type WeederView struct {
	Config   *v1alpha1.WeederConfig
	Services []weeder.ServiceForecast
}

// Weeders are what the stored WeederConfigs would do.
type Weeders struct {
	Views []WeederView
	// Unknown says what isn't known that they are planned by, and then there are no views; nil when all is.
	Unknown error
}

// ViewWeeders gives what all stored WeederConfigs do in their open windows under a policy, as the controller decides on all of
// their pods, and what each would do if another Service recovered. None that can't be read is among them.
func (f *Facts) ViewWeeders(policy guardrail.Policy) Weeders {
	if err := f.snapshot.Covers("WeederConfig"); err != nil {
		return Weeders{Unknown: err}
	}
	state := func(wc *v1alpha1.WeederConfig) lifecycle.State { return StateOfWeeder(wc, policy.Paused()) }
	known := newWeeder(f.snapshot, policy.Limits, f.ownNamespace, state)
	plans := known.PlanAll(f.snapshot.weederAt())
	var views []WeederView
	for _, wc := range allOf[v1alpha1.WeederConfig](f.snapshot.Objects) {
		if wc.DeletionTimestamp == nil {
			items := f.ForecastPods(wc, state(wc), policy.Limits).Items
			c, _ := weeder.NewConfig(wc, f.ownNamespace) // of one that can't be read there is nothing to settle
			items.UsePlans(c, plans)
			views = append(views, WeederView{wc, items.Services})
		}
	}
	return Weeders{Views: views}
}

// Pod is a pod as the planner reads it; ok is false when there is none of this name.
func (f *Facts) Pod(key types.NamespacedName) (p *weeder.Pod, ok bool) {
	pod := one[corev1.Pod](f.snapshot.Objects, key)
	if pod == nil {
		return nil, false
	}
	return weeder.ReadPod(pod), true
}

// PodsOf are the pods that a workload's controllers own, by name.
func (f *Facts) PodsOf(owner weeder.Workload) []*weeder.Pod {
	var pods []*weeder.Pod
	for _, pod := range allOf[corev1.Pod](f.snapshot.Objects) {
		if p := weeder.ReadPod(pod); p.Workload() == owner {
			pods = append(pods, p)
		}
	}
	return pods
}

// HoldOn is the hold that a workload's annotation asks for, nil for none.
func (f *Facts) HoldOn(w weeder.Workload) *hold.Hold {
	stored, there := f.snapshot.Objects.find(appsv1.SchemeGroupVersion.WithKind(w.Kind).GroupKind(), types.NamespacedName{Namespace: w.Namespace, Name: w.Name})
	if !there {
		return nil
	}
	return hold.Of(stored.raw.GetAnnotations())
}

// ForecastOutlierPolicy tells what a policy would have meant at the snapshot's moment.
func (f *Facts) ForecastOutlierPolicy(op *v1alpha1.OutlierPolicy, _ limit.Limits, _ time.Time) outlier.Forecast {
	return outlier.ForecastOf(op, f.outlierObjects(), f.ownNamespace)
}

// outlierObjects is the whole cluster.
func (f *Facts) outlierObjects() outlier.Objects {
	o := f.snapshot.Objects
	w := outlier.Objects{Policies: allOf[v1alpha1.OutlierPolicy](o), Services: allOf[corev1.Service](o), Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for _, slice := range allOf[discoveryv1.EndpointSlice](o) {
		of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		w.Slices[of] = append(w.Slices[of], slice)
	}
	for _, kind := range outlier.RouteKinds {
		for _, route := range o.all(kind) {
			w.Routes = append(w.Routes, outlier.ReadRoute(route.raw.Object))
		}
	}
	return w
}

// HostAssignment is a host of an Envoy cluster for which an OutlierPolicy holds.
type HostAssignment struct {
	Policy *v1alpha1.OutlierPolicy
	Read   *outlier.Policy
	// Cluster with all its hosts.
	Cluster outlier.Key
	Hosts   []outlier.Host
	outlier.Host
	// OutOfDate is why Envoys may have something else than what the policy says; "" when they have it, or nobody knows better.
	OutOfDate string
}

// outOfDate says why Envoys may have something else of a cluster than what a policy says.
func outOfDate(op *v1alpha1.OutlierPolicy, a *outlier.Assignment) string {
	if verdictOf(op) == nil {
		return "The manager hasn't judged the policy as it is now: Envoys keep what they have."
	}
	for _, t := range op.Status.Ancestors {
		ref := v1alpha1.OutlierTargetReference{Group: t.AncestorRef.Group, Kind: t.AncestorRef.Kind, Name: t.AncestorRef.Name, SectionName: t.AncestorRef.SectionName, Backend: t.AncestorRef.Backend}
		if len(op.Spec.TargetRefs) > 0 && !a.IsFor(ref) {
			continue
		}
		if c := meta.FindStatusCondition(t.Conditions, v1alpha1.ConditionProgrammed); c != nil && c.Status == metav1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// At is the host's address, ip:port.
func (s *HostAssignment) At() string {
	return net.JoinHostPort(s.Address, strconv.FormatUint(uint64(s.Port), 10))
}

// HostAssignments are the chosen hosts of a namespace's clusters, as the policies hold that the manager last accepted. It fails with what isn't
// known that they are planned by.
func (f *Facts) HostAssignments(namespace string, chosen func(outlier.Key, outlier.Host) bool) (assignments []HostAssignment, err error) {
	if err := f.snapshot.Covers("OutlierPolicy"); err != nil {
		return nil, err
	}
	w := f.outlierObjects()
	stored, policies := map[*outlier.Policy]*v1alpha1.OutlierPolicy{}, []*outlier.Policy(nil)
	for _, op := range w.Policies {
		if p, err := outlier.NewPolicy(op); op.DeletionTimestamp == nil {
			p.Refused = err != nil || meta.IsStatusConditionFalse(op.Status.Conditions, v1alpha1.ConditionAccepted)
			stored[p], policies = op, append(policies, p)
		}
	}
	index := outlier.NewIndex(policies, w.Routes, f.ownNamespace)
	for _, svc := range w.Services {
		if svc.Namespace != namespace {
			continue
		}
		for _, a := range index.Assign(svc, nil) {
			if a.Policy == nil {
				continue
			}
			hosts := outlier.HostsOf(svc, a.Port, w.Slices[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}])
			for _, h := range hosts {
				if chosen(a.Key, h) {
					assignments = append(assignments, HostAssignment{Policy: stored[a.Policy], Read: a.Policy, Cluster: a.Key, Hosts: hosts, Host: h, OutOfDate: outOfDate(stored[a.Policy], a)})
				}
			}
		}
	}
	slices.SortStableFunc(assignments, func(a, b HostAssignment) int { return cmp.Compare(a.Cluster.String(), b.Cluster.String()) })
	return assignments, nil
}
