package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// Facts answers for a snapshot what informers answer in the manager.
type Facts struct {
	snapshot *Snapshot
	fleet    *condition.Fleet
	at       condition.Moment
	sets     map[string]*v1alpha1.ConditionSet

	// yard is nil when the snapshot has no workloads.
	yard    *weed.Yard
	configs map[types.NamespacedName]*v1alpha1.WeederConfig
	probers []v1alpha1.ProbeConfig
	// outliers are stored and applied policies.
	outliers []v1alpha1.OutlierPolicy
	// registrations are stored and applied ones.
	registrations []v1alpha1.HealthCheckRegistration
	// known has those that were read before, fields what the stored ones read of objects.
	known  dependents.Known
	fields registration.Fields

	ownNamespace string
}

// NewFacts feeds a snapshot to the planner, under the policy of a guard that has its Guardrails. The guard judges the
// stored sets too: those that it refuses don't act, and so take no room. OwnNamespace is Autohealer's.
func NewFacts(ctx context.Context, s *Snapshot, g *guard.Guard, ownNamespace string) (*Facts, error) {
	at := condition.Moment{Now: s.TakenAt.Time, Server: s.ServerTime.Time}
	return newFacts(ctx, s, g, ownNamespace, at, func(*corev1.Node) time.Time { return at.Now })
}

// NewWatchedFacts is NewFacts as if someone in the cluster had watched all nodes since their conditions last turned, as the
// manager has but for what turned just before it started: what counts from when it saw something comes out as it does there.
func NewWatchedFacts(ctx context.Context, s *Snapshot, g *guard.Guard, ownNamespace string) (*Facts, error) {
	at := condition.Moment{Now: s.ServerTime.Time, Server: s.ServerTime.Time}
	return newFacts(ctx, s, g, ownNamespace, at, func(n *corev1.Node) time.Time {
		turned := n.CreationTimestamp.Time
		for _, c := range n.Status.Conditions {
			if c.LastTransitionTime.After(turned) {
				turned = c.LastTransitionTime.Time
			}
		}
		if turned.After(at.Now) {
			return at.Now
		}
		return turned
	})
}

func newFacts(ctx context.Context, s *Snapshot, g *guard.Guard, ownNamespace string, at condition.Moment, seen func(*corev1.Node) time.Time) (*Facts, error) {
	policy, err := policyOf(g.Policy())
	if err != nil {
		return nil, err
	}
	f := &Facts{
		snapshot: s, fleet: condition.NewFleet(policy.Limits),
		at: at, sets: map[string]*v1alpha1.ConditionSet{}, probers: slices.Clone(s.ProbeConfigs), outliers: slices.Clone(s.OutlierPolicies), registrations: slices.Clone(s.HealthCheckRegistrations), ownNamespace: ownNamespace,
	}
	f.yard, f.configs = newYard(s, policy.Limits, ownNamespace, frozen)
	f.fleet.SetPolicy(policy, f.at)
	for i := range s.Nodes {
		f.fleet.ObserveNode(&s.Nodes[i], condition.Moment{Now: seen(&s.Nodes[i]), Server: at.Server})
	}
	for _, l := range s.Leases {
		f.fleet.ObserveLease(l.Node, l.Renew.Time, f.at)
	}
	f.fleet.ObserveSystemPods(s.systemPods())
	for i := range s.ConditionSets {
		admitted, _ := guard.Admit(ctx, g, &s.ConditionSets[i])
		f.observe(&s.ConditionSets[i], admitted.Valid())
	}
	f.fleet.MarkSynced(f.at)
	return f, nil
}

func (f *Facts) observe(cs *v1alpha1.ConditionSet, admitted bool) {
	f.sets[cs.Name] = cs
	set, err := condition.NewSet(cs)
	if err != nil {
		set = condition.Unreadable(cs)
	}
	f.fleet.ObserveSet(set, condition.StateOf(cs, err == nil, admitted), condition.StoredBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], f.at)
}

// Apply puts an admitted set in place of the stored one of its name, as the controller would have it soon after: recorded
// and ready to act. What is asked next is answered with it in force.
func (f *Facts) Apply(cs *v1alpha1.ConditionSet) {
	cs = cs.DeepCopy()
	cs.UID, cs.CreationTimestamp = types.UID("applied/"+cs.Name), f.snapshot.TakenAt
	if stored := f.sets[cs.Name]; stored != nil {
		cs.UID, cs.CreationTimestamp, cs.Generation = stored.UID, stored.CreationTimestamp, stored.Generation
		cs.Status = *stored.Status.DeepCopy()
	}
	cs.Generation++
	cs.Finalizers = []string{v1alpha1.FinalizerUndo}
	cs.Status.TaintKeys = append(cs.Status.TaintKeys, cs.Spec.TaintKey)
	f.snapshot.rewrite("ConditionSet", cs)
	f.observe(cs, true)
}

// Object is the policy of a kind and name as the API server has it; nil when there is none. What was applied is there too.
func (f *Facts) Object(ctx context.Context, kind, namespace, name string) (map[string]any, error) {
	stored, here := f.kept(kind, types.NamespacedName{Namespace: namespace, Name: name})
	if !here {
		var err error
		if stored, err = f.snapshot.Get(ctx, kind, namespace, name); err != nil {
			return nil, err
		}
	}
	if stored == nil {
		return nil, nil
	}
	return f.snapshot.object(kind, stored)
}

// kept is the policy of that name, nil when there is none; here is false of kinds that aren't kept here.
func (f *Facts) kept(kind string, key types.NamespacedName) (stored client.Object, here bool) {
	switch kind {
	case "ConditionSet":
		return orNone(f.sets[key.Name]), true
	case "WeederConfig":
		return orNone(f.configs[key]), true
	case "ProbeConfig":
		return orNone(f.prober(key)), true
	case "OutlierPolicy":
		return orNone(f.outlierPolicy(key)), true
	case "HealthCheckRegistration":
		return orNone(f.registration(key.Name)), true
	}
	return nil, false
}

// orNone keeps a nil pointer from being an object.
func orNone[T any, P interface {
	*T
	client.Object
}](p P) client.Object {
	if p == nil {
		return nil
	}
	return p
}

// policyOf is what Guardrails say, as the planner of ConditionSets reads it.
func policyOf(p guardrail.Policy) (condition.Policy, error) {
	types, err := p.Registry()
	if err != nil {
		return condition.Policy{}, fmt.Errorf("read condition types of Guardrails: %w", err)
	}
	policy := condition.Policy{Limits: p.Limits, Precedence: condition.Precedence(p.Precedence), Types: types}
	if p.Paused() {
		policy.Paused, policy.Frozen = "paused by Guardrail "+strings.Join(p.PausedBy, ", "), p.Frozen()
	}
	return policy, nil
}

// Planners for the kinds that the snapshot has facts about.
func (f *Facts) Planners() map[string]guard.Planner {
	planners := map[string]guard.Planner{"ConditionSet": guard.PlannerOf(f.ForecastConditionSet)}
	if f.KnowsWorkloads() {
		planners["WeederConfig"] = guard.PlannerOf(f.ForecastWeederConfig)
	}
	if f.KnowsProbed() {
		planners["ProbeConfig"] = guard.PlannerThatReads(f.ForecastProbeConfig)
	}
	if f.KnowsRouted() {
		planners["OutlierPolicy"] = guard.PlannerOf(f.ForecastOutlierPolicy)
	}
	if f.KnowsChecked() {
		planners["HealthCheckRegistration"] = guard.PlannerThatReads(f.ForecastRegistration)
	}
	return planners
}

// Synced is true: a snapshot is complete.
func (f *Facts) Synced() bool { return true }

// Age of the snapshot.
func (f *Facts) Age(now time.Time) time.Duration { return f.snapshot.Age(now) }

// Nodes counts those of which limits take a share.
func (f *Facts) Nodes() int {
	_, _, of := f.fleet.TaintedNodes()
	return of
}

// ForecastConditionSet tells what a set would have done at the snapshot's moment.
func (f *Facts) ForecastConditionSet(set *v1alpha1.ConditionSet, limits limit.Limits, _ time.Time) condition.Forecast {
	return f.fleet.Forecast(set, limits, f.at)
}

// Summary of the set of a name; ok is false when there is none of this name.
func (f *Facts) Summary(name string) (sum condition.Summary, ok bool) {
	set := f.sets[name]
	if set == nil {
		return condition.Summary{}, false
	}
	return f.fleet.Summary(set.UID, f.at)
}
