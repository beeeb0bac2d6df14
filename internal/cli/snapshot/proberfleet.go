package snapshot

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// probedFleet is the controller's, as far as the stored configs' statuses tell.
func (f *Facts) probedFleet(policy guardrail.Policy) *probe.Fleet {
	fleet, breaker := probe.NewFleet(policy.Limits), ""
	for _, pc := range f.probers() {
		if pc.Status.Targets != nil {
			f.enlist(fleet, pc)
		}
		breaker = max(breaker, pc.Status.BreakerID) // they are in the order of time
	}
	if breaker != "" {
		fleet.FollowBreaker(&limit.Opening{ID: breaker, OpenedAt: probe.BreakerOpenedAt(breaker)})
	}
	return fleet
}

// enlist takes in a config's targets. A status names only some; those that it doesn't name get names that no namespace has.
func (f *Facts) enlist(fleet *probe.Fleet, pc *v1alpha1.ProbeConfig) {
	counts, now := pc.Status.Targets, f.snapshot.ServerTime.Time
	down := downIn(pc)
	for i := range max(counts.Probed, counts.ScaledDown) {
		t := probe.TargetKey{Config: pc.UID, Namespace: fmt.Sprint("#", i)}
		switch {
		case pc.Spec.NamespaceSelector == nil:
			t.Namespace = pc.Namespace
		case int(i) < len(down):
			t.Namespace = down[i]
		}
		f.expect(fleet, pc, t)
		fleet.SetActive(t, f.acts(pc) && int(i) < works(pc), now)
		if i < counts.Probed {
			fleet.ObserveRun(t, &probe.State{}, now)
		}
		fleet.ObserveDown(t, i < counts.ScaledDown)
	}
}

// expect takes in a target as the controller does.
func (f *Facts) expect(fleet *probe.Fleet, pc *v1alpha1.ProbeConfig, t probe.TargetKey) {
	fleet.Add(t, pc.Namespace != f.ownNamespace)
}

// acts says whether a config is in force, and so counts for others.
func (*Facts) acts(pc *v1alpha1.ProbeConfig) bool {
	return pc.Spec.Mode != v1alpha1.Observe && pc.DeletionTimestamp == nil && meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ConditionAccepted)
}

// worked says whether a target's external kubeconfig works, by a config's status. A status that tells of one may mean the one before it: that
// the one that is there never worked is told once it fails.
func worked(pc *v1alpha1.ProbeConfig, namespace string) bool {
	proven := func(p v1alpha1.ProvenKubeconfig) bool { return p.Namespace == namespace }
	fails := func(t v1alpha1.TargetState) bool {
		return t.Namespace == namespace && t.Reason == v1alpha1.ReasonKubeconfigUntried
	}
	all := pc.Status.ProvenKubeconfigs
	return (len(all) >= probe.MaxProvenKubeconfigs || slices.ContainsFunc(all, proven)) && !slices.ContainsFunc(pc.Status.WorstTargets, fails)
}

// works is how many targets of a config count for others, as far as its status tells.
func works(pc *v1alpha1.ProbeConfig) int {
	all := pc.Status.ProvenKubeconfigs
	if len(all) >= probe.MaxProvenKubeconfigs {
		return math.MaxInt
	}
	n := 0
	for _, p := range all {
		if worked(pc, p.Namespace) {
			n++
		}
	}
	return n
}

// mayGoDown says whether nothing of a target itself is in the way.
func mayGoDown(pc *v1alpha1.ProbeConfig, c *probe.Config, namespace string) probe.Permit {
	is := probe.Target{Namespace: namespace, Config: c, Credentials: probe.Credentials{Config: c}}
	if worked(pc, namespace) {
		is.ProvenMark = is.Credentials.External.Mark()
	}
	return is.CanScaleDown()
}

// downIn are the namespaces in which a status names objects that are scaled down.
func downIn(pc *v1alpha1.ProbeConfig) []string {
	var namespaces []string
	for _, s := range pc.Status.Scaled {
		namespaces = append(namespaces, s.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// permit says whether a config may scale down a target now.
func (f *Facts) permit(fleet *probe.Fleet, policy guardrail.Policy, pc *v1alpha1.ProbeConfig, c *probe.Config, namespace string) probe.Permit {
	accepted := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case accepted == nil, accepted.ObservedGeneration != pc.Generation:
		return probe.Permit{Reason: "NotJudged", Message: "the manager hasn't judged the config as it is now"}
	case accepted.Status != metav1.ConditionTrue:
		return probe.Permit{Reason: probe.Reason(accepted.Reason), Message: "the rules refuse the config"}
	case len(policy.PausedBy) > 0:
		return probe.Permit{Reason: v1alpha1.ReasonPaused, Message: "Guardrail " + strings.Join(policy.PausedBy, ", ") + " pauses all new acts"}
	}
	if held := mayGoDown(pc, c, namespace); !held.Allowed {
		return held
	}
	t, now := probe.TargetKey{Config: pc.UID, Namespace: namespace}, f.snapshot.ServerTime.Time
	probed := pc.Status.Targets != nil && pc.Status.Targets.Probed > 0
	if pc.Spec.NamespaceSelector != nil || !probed {
		f.expect(fleet, pc, t)
		fleet.ObserveDown(t, slices.Contains(downIn(pc), namespace))
	}
	if !probed { // before it is scaled down it is
		fleet.SetActive(t, true, now)
		fleet.ObserveRun(t, &probe.State{}, now)
	}
	return fleet.CanScaleDown(t, now)
}
