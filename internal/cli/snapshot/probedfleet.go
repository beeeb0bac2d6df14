package snapshot

import (
	"fmt"
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
	fleet := probe.NewFleet(policy.Limits)
	for _, pc := range f.probers() {
		if pc.Status.Targets != nil {
			f.enlist(fleet, pc)
		}
		if id := pc.Status.BreakerID; id != "" {
			fleet.RestoreBreaker(limit.Opening{ID: id, OpenedAt: probe.BreakerOpenedAt(id)})
		}
	}
	return fleet
}

// enlist takes in a config's targets. A status names only some; those that it doesn't name get names that no namespace has.
func (f *Facts) enlist(fleet *probe.Fleet, pc *v1alpha1.ProbeConfig) {
	counts, now := pc.Status.Targets, f.snapshot.ServerTime.Time
	down := downIn(pc)
	for i := range max(counts.Probed, counts.ScaledDown) {
		t := probe.Target{Config: pc.UID, Namespace: fmt.Sprint("#", i)}
		switch {
		case pc.Spec.NamespaceSelector == nil:
			t.Namespace = pc.Namespace
		case int(i) < len(down):
			t.Namespace = down[i]
		}
		f.expect(fleet, pc, t)
		fleet.Acts(t, f.acts(pc), now)
		if i < counts.Probed {
			fleet.Observe(t, &probe.State{}, now)
		}
		fleet.ObserveDown(t, i < counts.ScaledDown)
	}
}

// expect takes in a target as the controller does.
func (f *Facts) expect(fleet *probe.Fleet, pc *v1alpha1.ProbeConfig, t probe.Target) {
	if pc.Namespace == f.ownNamespace {
		fleet.Expect(t)
	} else {
		fleet.ExpectTenant(t)
	}
}

// acts says whether a config is in force, and so counts for others.
func (*Facts) acts(pc *v1alpha1.ProbeConfig) bool {
	return pc.Spec.Mode != v1alpha1.Observe && pc.DeletionTimestamp == nil && meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ConditionAccepted)
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
func (f *Facts) permit(fleet *probe.Fleet, policy guardrail.Policy, pc *v1alpha1.ProbeConfig, namespace string) probe.Permit {
	accepted := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case accepted == nil, accepted.ObservedGeneration != pc.Generation:
		return probe.Permit{Reason: "NotJudged", Message: "the manager hasn't judged the config as it is now"}
	case accepted.Status != metav1.ConditionTrue:
		return probe.Permit{Reason: probe.Reason(accepted.Reason), Message: "the rules refuse the config"}
	case len(policy.PausedBy) > 0:
		return probe.Permit{Reason: v1alpha1.ReasonPaused, Message: "Guardrail " + strings.Join(policy.PausedBy, ", ") + " pauses all new acts"}
	}
	t, now := probe.Target{Config: pc.UID, Namespace: namespace}, f.snapshot.ServerTime.Time
	probed := pc.Status.Targets != nil && pc.Status.Targets.Probed > 0
	if pc.Spec.NamespaceSelector != nil || !probed {
		f.expect(fleet, pc, t)
		fleet.ObserveDown(t, slices.Contains(downIn(pc), namespace))
	}
	if !probed { // before it is scaled down it is
		fleet.Acts(t, true, now)
		fleet.Observe(t, &probe.State{}, now)
	}
	return fleet.MayGoDown(t, now)
}
