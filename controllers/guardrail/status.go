package guardrail

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// state is everything that a status tells.
type state struct {
	result guard.GuardrailResult
	// rejected are the stored policies that a rule of the Guardrail refuses now, sorted.
	rejected []string
	// silent are its witnesses that don't answer; looked is false before anybody looked.
	silent []probing.SilentWitness
	looked bool
}

// statusOf describes a Guardrail. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(g *v1alpha1.Guardrail, st state) v1alpha1.GuardrailStatus {
	after := *g.Status.DeepCopy()
	after.ObservedGeneration = g.Generation
	after.Rules, after.Rejects = ptr.To(int32(st.result.Rules)), ptr.To(int32(len(st.rejected)))
	after.RejectedPolicies = nil
	if len(st.rejected) > 0 {
		after.RejectedPolicies = st.rejected[:min(sample.Size, len(st.rejected))]
	}
	policy.Set(&after.Conditions, g.Generation, accepted(st))
	policy.Set(&after.Conditions, g.Generation, ready(g, st))
	policy.SetWhileTrue(&after.Conditions, g.Generation, stalled(st))
	policy.SetWhileTrue(&after.Conditions, g.Generation, witnessSilent(g, st))
	return after
}

func accepted(st state) metav1.Condition {
	c := policy.AcceptanceOf(st.result.Verdict, nil).Accepted()
	if len(st.result.Errors) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalidRule
	}
	if c.Status == metav1.ConditionFalse {
		c.Message = refusal(st)
	}
	return c
}

// refusal says what is wrong with the Guardrail: its rules that don't compile, each with its position, and the rules that
// it breaks.
func refusal(st state) string {
	var texts []string
	for _, e := range st.result.Errors {
		texts = append(texts, e.String())
	}
	if !st.result.Verdict.Allowed {
		texts = append(texts, st.result.Verdict.Message())
	}
	return sample.Cut(strings.Join(texts, "\n"), 32<<10) // what a condition takes
}

func ready(g *v1alpha1.Guardrail, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOperative, Message: inForce(g, st)}
	switch {
	case g.Spec.Frozen:
		c.Reason, c.Message = v1alpha1.ReasonFrozen, "Nothing is done in the whole cluster, and nothing undone. "+c.Message
	case g.Spec.Paused:
		c.Reason, c.Message = v1alpha1.ReasonPaused, "Nothing new is done in the whole cluster; undo goes on. "+c.Message
	}
	if a := accepted(st); a.Status == metav1.ConditionFalse {
		c.Status, c.Reason = metav1.ConditionFalse, a.Reason
		c.Message = "See Accepted. Until it is repaired it only makes things stricter: a rule that can't be evaluated refuses all of its kinds, and no limit is raised. " + c.Message
	}
	return c
}

// inForce tells in numbers what the Guardrail does.
func inForce(g *v1alpha1.Guardrail, st state) string {
	var texts []string
	if n := st.result.Rules; n > 0 {
		texts = append(texts, sample.Count(n, "rule"))
	}
	if l := g.Spec.Limits; l != nil {
		for _, cap := range []struct {
			name  string
			value *intstr.IntOrString
		}{{"maxTaintedNodes", l.MaxTaintedNodes}, {"maxEvictingNodes", l.MaxEvictingNodes}, {"maxScaledDownTargets", l.MaxScaledDownTargets}, {"maxTargetsFailingTogether", l.MaxTargetsFailingTogether}} {
			if cap.value != nil {
				texts = append(texts, cap.name+" "+cap.value.String())
			}
		}
		if l.MaxPodDeletionsPerMinute != nil {
			texts = append(texts, fmt.Sprintf("maxPodDeletionsPerMinute %d", *l.MaxPodDeletionsPerMinute))
		}
	}
	if n := len(g.Spec.ConditionTypes); n > 0 {
		texts = append(texts, sample.Count(n, "condition type"))
	}
	if n := len(g.Spec.Witnesses); n > 0 {
		texts = append(texts, counted(n, "witness", "witnesses"))
	}
	if p := g.Spec.ConditionSetPrecedence; p != "" {
		texts = append(texts, "precedence "+string(p))
	}
	text := "The Guardrail sets nothing."
	if len(texts) > 0 {
		text = "The Guardrail sets " + strings.Join(texts, ", ") + "."
	}
	if n := len(st.rejected); n > 0 {
		text += fmt.Sprintf(" Its rules refuse %s; see rejectedPolicies.", counted(n, "stored policy", "stored policies"))
	}
	return text
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// witnessSilent tells of witnesses that wouldn't vouch for anything if it came to it.
func witnessSilent(g *v1alpha1.Guardrail, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionWitnessSilent}
	if stored := meta.FindStatusCondition(g.Status.Conditions, c.Type); stored != nil && !st.looked && len(g.Spec.Witnesses) > 0 {
		return *stored // a manager that takes over hasn't looked yet
	}
	var texts []string
	for _, s := range st.silent {
		if slices.ContainsFunc(g.Spec.Witnesses, func(w v1alpha1.Witness) bool { return w.Name == s.Name && w.Address == s.Address }) { // else it isn't named any more
			texts = append(texts, fmt.Sprintf("%s (%s): %s", s.Name, s.Address, s.Reason))
		}
	}
	if len(texts) > 0 {
		c.Reason = v1alpha1.ReasonNoAnswer
		c.Message = fmt.Sprintf("The TLS handshake with %d of %s failed: %s.", len(texts), counted(len(g.Spec.Witnesses), "witness", "witnesses"), strings.Join(texts, "; "))
		if len(texts) == len(g.Spec.Witnesses) {
			c.Message += " While none answers, nobody vouches for targets of ProbeConfigs that fail together, and the breaker holds them back."
		}
	}
	return c
}

func stalled(st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionStalled}
	if a := accepted(st); a.Status == metav1.ConditionFalse {
		c.Reason, c.Message = a.Reason, a.Message
	}
	return c
}
