package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// Facts answers for a snapshot what informers answer in the manager.
type Facts struct {
	snapshot *Snapshot
	fleet    *condition.Fleet
	at       timing.Moment
	weeder   *weeder.State
	// known has registrations that were read before, fields what the stored ones read of objects.
	known  dependents.Known
	fields registration.Fields

	ownNamespace string
}

// NewFacts feeds a snapshot to the planner, under the policy of a guard that has its Guardrails. The guard judges the
// stored sets too: those that it refuses don't act, and so take no room. OwnNamespace is Autohealer's.
func NewFacts(ctx context.Context, s *Snapshot, g *guard.Guard, ownNamespace string) (*Facts, error) {
	at := timing.Moment{Now: s.TakenAt.Time, Server: s.ServerTime.Time}
	return newFacts(ctx, s, g, ownNamespace, at, func(*corev1.Node) time.Time { return at.Now })
}

// NewWatchedFacts is NewFacts as if someone in the cluster had watched all nodes since their conditions last turned, as the
// manager has but for what turned just before it started: what counts from when it saw something comes out as it does there.
func NewWatchedFacts(ctx context.Context, s *Snapshot, g *guard.Guard, ownNamespace string) (*Facts, error) {
	at := timing.Moment{Now: s.ServerTime.Time, Server: s.ServerTime.Time}
	return newFacts(ctx, s, g, ownNamespace, at, func(n *corev1.Node) time.Time {
		changed := n.CreationTimestamp.Time
		for _, c := range n.Status.Conditions {
			if c.LastTransitionTime.After(changed) {
				changed = c.LastTransitionTime.Time
			}
		}
		if changed.After(at.Now) {
			return at.Now
		}
		return changed
	})
}

func newFacts(ctx context.Context, s *Snapshot, g *guard.Guard, ownNamespace string, at timing.Moment, seen func(*corev1.Node) time.Time) (*Facts, error) {
	policy := policyOf(g.Policy())
	f := &Facts{snapshot: s, fleet: condition.NewFleet(policy.Limits), at: at, fields: storedFields(s), ownNamespace: ownNamespace}
	f.weeder = newWeeder(s, policy.Limits, ownNamespace, frozen)
	f.fleet.SetPolicy(policy, f.at)
	for _, node := range allOf[corev1.Node](s.Objects) {
		f.fleet.ObserveNode(node, timing.Moment{Now: seen(node), Server: at.Server})
	}
	for _, lease := range allOf[coordinationv1.Lease](s.Objects) {
		if lease.Namespace == corev1.NamespaceNodeLease && lease.Spec.RenewTime != nil {
			f.fleet.ObserveLease(lease.Name, lease.Spec.RenewTime.Time, f.at)
		}
	}
	var pods []ecosystem.SystemPod
	for _, ds := range allOf[appsv1.DaemonSet](s.Objects) {
		if p, is := ecosystem.SystemPodOf(ds); is {
			pods = append(pods, p)
		}
	}
	f.fleet.ObserveSystemPods(pods)
	for _, cs := range allOf[v1alpha1.ConditionSet](s.Objects) {
		admitted, _ := guard.Admit(ctx, g, cs)
		f.observe(cs, admitted.Valid())
	}
	f.fleet.MarkSynced(f.at)
	return f, nil
}

func (f *Facts) observe(cs *v1alpha1.ConditionSet, admitted bool) {
	set, err := condition.NewSet(cs)
	if err != nil {
		set = condition.Unreadable(cs)
	}
	f.fleet.ObserveSet(set, condition.StateOf(cs, err == nil, admitted), condition.StoredBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], f.at)
}

// Apply puts an admitted policy in place of the stored one of its name, as the controller would have it soon after: recorded
// and ready to act. What is asked next is answered with it in force.
func (f *Facts) Apply(policy client.Object) error {
	kind, err := apiutil.GVKForObject(policy, known)
	if err != nil {
		return err
	}
	raw := &unstructured.Unstructured{}
	if raw.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(policy); err != nil {
		return fmt.Errorf("convert %s %s: %w", kind.Kind, policy.GetName(), err)
	}
	raw.SetGroupVersionKind(kind)
	key := client.ObjectKeyFromObject(policy)
	raw.SetUID(types.UID("applied/" + strings.TrimPrefix(key.String(), "/")))
	raw.SetCreationTimestamp(f.snapshot.TakenAt)
	delete(raw.Object, "status")
	if stored, there := f.snapshot.Objects.find(kind.GroupKind(), key); there {
		raw.SetUID(stored.raw.GetUID())
		raw.SetCreationTimestamp(stored.raw.GetCreationTimestamp())
		raw.SetGeneration(stored.raw.GetGeneration())
		if status, is := stored.raw.Object["status"]; is {
			raw.Object["status"] = runtime.DeepCopyJSONValue(status)
		}
	}
	raw.SetGeneration(raw.GetGeneration() + 1)
	if err := f.snapshot.Objects.store(raw); err != nil {
		return err
	}
	applied, _ := f.snapshot.Objects.find(kind.GroupKind(), key)
	switch p := applied.typed.(type) {
	case *v1alpha1.ConditionSet:
		p.Finalizers = []string{v1alpha1.FinalizerUndo}
		p.Status.TaintKeys = append(p.Status.TaintKeys, p.Spec.TaintKey)
		f.observe(p, true)
	case *v1alpha1.WeederConfig:
		if c, err := weeder.NewConfig(p, f.ownNamespace); err == nil {
			f.weeder.ObserveConfig(c, lifecycle.NotJudged, f.snapshot.weederAt())
		}
	}
	return nil
}

// Object is the policy of a kind and name as the API server has it; nil when there is none. What was applied is there too.
func (f *Facts) Object(kind, namespace, name string) map[string]any {
	stored, there := f.snapshot.Objects.find(ours(kind).GroupKind(), types.NamespacedName{Namespace: namespace, Name: name})
	if !there {
		return nil
	}
	return runtime.DeepCopyJSON(stored.raw.Object)
}

// policyOf is what Guardrails say, as the planner of ConditionSets reads it.
func policyOf(p guardrail.Policy) condition.Policy {
	policy := condition.Policy{Limits: p.Limits, Precedence: condition.Precedence(p.Precedence), DeclaredTypes: p.DeclaredTypes()}
	if p.Paused() {
		policy.Paused, policy.Frozen = "paused by Guardrail "+strings.Join(p.PausedBy, ", "), p.Frozen()
	}
	return policy
}

// Planners of all kinds. Those of which the snapshot doesn't know enough say so.
func (f *Facts) Planners() map[string]guard.Planner {
	planners := map[string]guard.Planner{
		"ConditionSet": guard.PlannerOf(f.ForecastConditionSet), "WeederConfig": guard.PlannerOf(f.ForecastWeederConfig),
		"ProbeConfig": guard.PlannerThatReads(f.ForecastProbeConfig), "OutlierPolicy": guard.PlannerOf(f.ForecastOutlierPolicy),
		"HealthCheckRegistration": guard.PlannerThatReads(f.ForecastRegistration),
	}
	for kind, planner := range planners {
		planners[kind] = planner.When(func() bool { return f.snapshot.Complete(kind) })
	}
	return planners
}

// Synced says whether the nodes are known, which is what rules read of facts beside plans.
func (f *Facts) Synced() bool { return f.snapshot.Complete("ConditionSet") }

// Age of the snapshot.
func (f *Facts) Age(now time.Time) time.Duration { return f.snapshot.Age(now) }

// Nodes counts those of which limits take a share.
func (f *Facts) Nodes() int {
	return f.fleet.Usage().Total
}

// ForecastConditionSet tells what a set would have done at the snapshot's moment.
func (f *Facts) ForecastConditionSet(set *v1alpha1.ConditionSet, limits limit.Limits, _ time.Time) condition.Forecast {
	return f.fleet.Forecast(set, limits, f.at)
}

// Summary of the set of a name; ok is false when there is none of this name.
func (f *Facts) Summary(name string) (sum condition.Summary, ok bool) {
	set := one[v1alpha1.ConditionSet](f.snapshot.Objects, types.NamespacedName{Name: name})
	if set == nil {
		return condition.Summary{}, false
	}
	return f.fleet.Summary(set.UID, f.at)
}

// newWeeder feeds workloads and stored configs to the planner of WeederConfigs, as far as they are known: ProbeConfigs ask it of
// Services and pods, too, also where nothing is known of WeederConfigs. State says what the configs may do.
func newWeeder(s *Snapshot, limits limit.Limits, ownNamespace string, state func(*v1alpha1.WeederConfig) lifecycle.State) *weeder.State {
	known, at := weeder.NewState(limits, ownNamespace), s.weederAt()
	for _, ns := range allOf[corev1.Namespace](s.Objects) {
		known.ObserveNamespace(ns, at)
	}
	for _, svc := range allOf[corev1.Service](s.Objects) {
		known.ObserveService(svc)
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		for _, one := range s.Objects.all(appsv1.SchemeGroupVersion.WithKind(kind).GroupKind()) {
			if h := hold.Of(one.raw.GetAnnotations()); h != nil {
				known.ObserveHold(weeder.Workload{Namespace: one.raw.GetNamespace(), Kind: kind, Name: one.raw.GetName()}, h, "", at)
			}
		}
	}
	for _, pod := range allOf[corev1.Pod](s.Objects) {
		known.ObservePod(weeder.ReadPod(pod), at)
	}
	for _, slice := range allOf[discoveryv1.EndpointSlice](s.Objects) {
		known.ObserveSlice(slice, at)
	}
	for _, wc := range allOf[v1alpha1.WeederConfig](s.Objects) {
		if c, err := weeder.NewConfig(wc, ownNamespace); err == nil && wc.DeletionTimestamp == nil {
			known.ObserveConfig(c, state(wc), at)
		}
	}
	known.MarkSynced(at)
	return known
}

// weederAt is the snapshot's moment for the planner of WeederConfigs, which compares the API server's clock with that of the
// manager. Here there is no manager, and this machine's clock says nothing of the cluster.
func (s *Snapshot) weederAt() timing.Moment {
	return timing.Moment{Now: s.ServerTime.Time, Server: s.ServerTime.Time}
}

// frozen configs have windows and memories, but nothing is asked of what they would do.
func frozen(*v1alpha1.WeederConfig) lifecycle.State { return lifecycle.NotJudged }

// ForecastWeederConfig tells what a config would have done at the snapshot's moment.
func (f *Facts) ForecastWeederConfig(wc *v1alpha1.WeederConfig, limits limit.Limits, _ time.Time) weeder.Forecast {
	return f.weeder.Forecast(wc, limits, f.snapshot.weederAt())
}

// ForecastPods tells it pod by pod, of a config in that state.
func (f *Facts) ForecastPods(wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits) weeder.Forecast {
	return f.weeder.ForecastItems(wc, state, limits, f.snapshot.weederAt())
}
