package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// policies are those that could do it again.
type policies struct {
	sets          []v1alpha1.ConditionSet
	probes        []v1alpha1.ProbeConfig
	registrations []v1alpha1.HealthCheckRegistration
	// registrationsServed: there is their kind. Without it records of it may be anywhere.
	registrationsServed bool
	// stopped says why nobody does anything new; "" when they may.
	stopped string
	// setsUnknown, probesUnknown and registrationsUnknown say why these can't be told; "" when they can.
	setsUnknown, probesUnknown, registrationsUnknown string
}

// readPolicies reads what there is. Where the kinds aren't installed, there are none.
func readPolicies(ctx context.Context, c client.Client) *policies {
	p := &policies{}
	var sets v1alpha1.ConditionSetList
	var probes v1alpha1.ProbeConfigList
	var registrations v1alpha1.HealthCheckRegistrationList
	var rails v1alpha1.GuardrailList
	p.setsUnknown, p.probesUnknown = unread(ctx, c, &sets), unread(ctx, c, &probes)
	p.registrationsUnknown = unread(ctx, c, &registrations)
	p.registrationsServed = registrations.ResourceVersion != ""
	_ = unread(ctx, c, &rails) // then it isn't said that somebody stops them
	p.sets, p.probes, p.registrations = sets.Items, probes.Items, registrations.Items
	declared := make([]guardrail.Declared, len(rails.Items))
	for i := range rails.Items {
		declared[i] = guardrail.Declared{Guardrail: &rails.Items[i]}
	}
	switch policy := guardrail.Merge(limit.Builtin(), declared); {
	case policy.Frozen():
		p.stopped = "Guardrail " + strings.Join(policy.FrozenBy, ", ") + " freezes everything"
	case policy.Paused():
		p.stopped = "Guardrail " + strings.Join(policy.PausedBy, ", ") + " pauses new acts"
	}
	return p
}

// unread reads all objects of a kind and says why it can't. A kind that isn't there, or has gone just now, has none.
func unread(ctx context.Context, c client.Client, list client.ObjectList) string {
	if err := c.List(ctx, list); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return err.Error()
	}
	return ""
}

func (p *policies) setExists(uid types.UID) bool {
	return p.setsUnknown != "" || slices.ContainsFunc(p.sets, func(cs v1alpha1.ConditionSet) bool { return cs.UID == uid })
}

// taintsAgain says whether the set whose taint is removed matches the node still, as far as one look can tell.
func (p *policies) taintsAgain(s condition.Step, node *condition.Node, at condition.Moment) []string {
	for i := range p.sets {
		cs := &p.sets[i]
		if cs.UID != s.Set && cs.Name != s.SetName || cs.DeletionTimestamp != nil || cs.Spec.Mode == v1alpha1.Observe {
			continue
		}
		set, err := condition.NewSet(cs)
		if err != nil {
			continue // it does nothing new
		}
		if phase := set.Match(node, at).Phase; phase == condition.Matching || phase == condition.Doubtful {
			return []string{fmt.Sprintf("ConditionSet %s, which matches it", cs.Name)}
		}
	}
	return nil
}

// scalesAgain says whether the config for which replicas were taken would take them again.
func (p *policies) scalesAgain(c *probe.Config) []string {
	for i := range p.probes {
		pc := &p.probes[i]
		if pc.Namespace != c.Namespace || pc.Name != c.Name || pc.DeletionTimestamp != nil || pc.Spec.Mode == v1alpha1.Observe {
			continue
		}
		return []string{fmt.Sprintf("ProbeConfig %s, while its probe from outside fails", c.Key())}
	}
	return nil
}

// unknown says why it can't be told who would do again what was done to an object of a kind.
func (p *policies) unknown(kind schema.GroupVersionKind) string {
	if kind == nodeKind {
		return p.setsUnknown
	}
	if p.registrationsUnknown != "" {
		return p.registrationsUnknown
	}
	return p.probesUnknown
}

// again says who does again what was undone, and what keeps them from it.
func (p *policies) again(r Result, who []string) []string {
	if len(r.Did) == 0 {
		return nil
	}
	if unknown := p.unknown(r.Object.Kind); unknown != "" {
		return []string{"Whether a policy does it again isn't known: " + unknown}
	}
	if len(who) == 0 {
		return nil
	}
	slices.Sort(who)
	doers := strings.Join(slices.Compact(who), ", and ")
	switch {
	case r.Held != nil && r.Held.Until.IsZero():
		return []string{"Done again when the hold is corrected or removed: by " + doers}
	case r.Held != nil:
		return []string{fmt.Sprintf("Done again after %s: by %s", hold.Text(r.Held.Until), doers)}
	case p.stopped != "":
		return []string{fmt.Sprintf("Done again when that ends: by %s; now %s", doers, p.stopped)}
	}
	return []string{fmt.Sprintf("Done again soon: by %s. Keep it off with --hold=2h, or stop all with: kubectl autohealer freeze", doers)}
}
