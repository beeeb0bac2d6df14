package snapshot

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// NodeView is how all ConditionSets stand to a node, and what the planner would do with it.
type NodeView struct {
	Node   string
	At     condition.Moment
	Sights []condition.Sight
	Plan   condition.Plan
	// Says has, by UID, what the manager last said of sets that aren't ready.
	Says map[types.UID]string
	// Orphans are claims of sets that don't exist, or aren't known.
	Orphans []condition.OwnedTaint
	// Unknown says what isn't known that sets are planned by; nil when all is.
	Unknown error
}

// ViewNodes plans the nodes of these names, as the controller does: all nodes are decided on, those that waited longest first,
// so that each place under a limit goes to whom the controller would give it. Unknown names are left out.
func (f *Facts) ViewNodes(names ...string) []NodeView {
	plans := map[string]condition.Plan{}
	for _, name := range f.fleet.ByWait(f.at) {
		plans[name], _ = f.fleet.Decide(name, f.at, &condition.Evidence{NotRead: true})
	}
	var views []NodeView
	for _, name := range names {
		plan, known := plans[name]
		if !known {
			continue
		}
		v := NodeView{Node: name, At: f.at, Plan: plan, Sights: f.fleet.Sights(name, f.at), Says: f.unready(), Unknown: f.snapshot.Covers("ConditionSet")}
		for _, t := range plan.Node.Owned.Taints {
			if !slices.ContainsFunc(v.Sights, func(s condition.Sight) bool { return s.Set.UID == t.Set }) {
				v.Orphans = append(v.Orphans, t)
			}
		}
		views = append(views, v)
	}
	return views
}

// unready are the messages of the sets that aren't ready, by UID.
func (f *Facts) unready() map[types.UID]string {
	says := map[types.UID]string{}
	for _, cs := range allOf[v1alpha1.ConditionSet](f.snapshot.Objects) {
		if ready := meta.FindStatusCondition(cs.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			says[cs.UID] = ready.Message
		}
	}
	return says
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
	plans := known.Verdicts(f.snapshot.weederAt())
	var views []WeederView
	for _, wc := range allOf[v1alpha1.WeederConfig](f.snapshot.Objects) {
		if wc.DeletionTimestamp == nil {
			items := f.ForecastPods(wc, state(wc), policy.Limits).Items
			c, _ := weeder.NewConfig(wc, f.ownNamespace) // of one that can't be read there is nothing to settle
			items.Settle(c, plans)
			views = append(views, WeederView{wc, items.Services})
		}
	}
	return Weeders{Views: views}
}

// Pod is a pod as the planner reads it; ok is false when there is none of this name.
func (f *Facts) Pod(key types.NamespacedName) (p *weeder.Pod, ok bool) {
	stored, there := f.snapshot.Objects.find(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), key)
	if !there {
		return nil, false
	}
	return weeder.ReadPod(stored.typed.(*corev1.Pod)), true
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
