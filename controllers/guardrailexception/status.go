package guardrailexception

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/policy"
)

// state is everything that a status reports.
type state struct {
	// verdict of the rules over exceptions.
	verdict guard.Verdict
	now     time.Time
	// ends is when the exception's time is over.
	ends   time.Time
	target target
	// fixed are the named rules that may not be lifted, and unknown those that no rule for the target's kind is.
	fixed, unknown []string
	// atRunTime are the named rules that judge the stored target again and again; the others judge its changes.
	atRunTime []string
}

// addRules sorts the rules that an exception names.
func (st *state) addRules(g *guard.Guard, x *v1alpha1.GuardrailException) {
	rules := g.Rules(x.Spec.TargetRef.Kind)
	for _, id := range x.Spec.RuleIDs {
		switch i := slices.IndexFunc(rules, func(r guard.RuleInfo) bool { return r.ID == id }); {
		case i < 0:
			st.unknown = append(st.unknown, id)
		case !rules[i].Exceptable:
			st.fixed = append(st.fixed, id)
		case rules[i].AtRunTime:
			st.atRunTime = append(st.atRunTime, id)
		}
	}
}

// statusOf describes an exception. It is pure: the same state gives the same status, so that nothing is written when nothing
// changed.
func statusOf(x *v1alpha1.GuardrailException, st state) v1alpha1.GuardrailExceptionStatus {
	after := *x.Status.DeepCopy()
	after.ObservedGeneration = x.Generation
	judged := policy.AcceptanceOf(st.verdict, nil)
	accepted := judged.Accepted()
	ready := readyCondition(x, st)
	if judged.Rejected() && len(st.fixed) == 0 { // which says it better
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, accepted.Reason, "It lifts nothing while the rules refuse it; see Accepted."
	}
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled}
	switch {
	case judged.Rejected():
		stalled.Reason, stalled.Message = accepted.Reason, accepted.Message
	case ready.Status == metav1.ConditionFalse:
		stalled.Reason, stalled.Message = ready.Reason, ready.Message
	}
	policy.Set(&after.Conditions, x.Generation, accepted)
	policy.Set(&after.Conditions, x.Generation, ready)
	policy.SetWhileTrue(&after.Conditions, x.Generation, stalled)
	return after
}

// readyCondition says whether the exception needs nobody: it holds, or has held. So does one whose target or rules aren't stored yet: it must be
// there before the target, and GitOps tools wait for it, which also apply anew to another cluster what is over.
func readyCondition(x *v1alpha1.GuardrailException, st state) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	name := x.Spec.TargetRef.Kind + " " + x.Spec.TargetRef.Name
	until := st.ends.UTC().Format(time.RFC3339)
	is := "isn't stored"
	if st.target.found {
		is = "has spec hash " + st.target.hash
	}
	switch matches := st.target.found && st.target.hash == x.Spec.SpecHash; {
	case !st.now.Before(st.ends):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonExpired, fmt.Sprintf("It has lifted nothing since %s. Delete it, or make another one.", until)
		if ids := onChange(x, st); matches && len(ids) > 0 {
			c.Message += fmt.Sprintf(" %s goes on as it was admitted: %s judges changes only.", name, strings.Join(ids, ", "))
		}
	case len(st.fixed)+len(st.unknown) > 0:
		c.Status, c.Reason, c.Message = ofRules(x, st, until)
	case matches:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonActive, active(x, st, name, until)
	case !heldBefore(x):
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonWaiting
		c.Message = fmt.Sprintf("Until %s it waits for %s with spec hash %s, which now %s.", until, name, x.Spec.SpecHash, is)
	case st.target.found:
		c.Reason = v1alpha1.ReasonSpecChanged
		c.Message = fmt.Sprintf("It lifts nothing: it is for %s with spec hash %s, which now %s.", name, x.Spec.SpecHash, is)
	default:
		c.Reason, c.Message = v1alpha1.ReasonTargetMissing, fmt.Sprintf("It lifts nothing: %s is gone.", name)
	}
	return c
}

// ofRules tells what is the matter with its rules.
func ofRules(x *v1alpha1.GuardrailException, st state, until string) (ready metav1.ConditionStatus, reason, message string) {
	kind, unknown := x.Spec.TargetRef.Kind, strings.Join(st.unknown, ", ")
	switch {
	case len(st.fixed) > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonRuleNotExceptable, fmt.Sprintf("It lifts nothing: %s can't be lifted.", strings.Join(st.fixed, ", "))
	case heldBefore(x):
		return metav1.ConditionFalse, v1alpha1.ReasonRuleNotExceptable, fmt.Sprintf("It lifts nothing: there is no rule %s for a %s any more.", unknown, kind)
	}
	return metav1.ConditionTrue, v1alpha1.ReasonWaiting, fmt.Sprintf("Until %s it waits for a rule %s for a %s, and lifts nothing before there is one.", until, unknown, kind)
}

// heldBefore says whether this generation of the exception has met its target already.
func heldBefore(x *v1alpha1.GuardrailException) bool {
	was := meta.FindStatusCondition(x.Status.Conditions, v1alpha1.ConditionReady)
	return was != nil && was.ObservedGeneration == x.Generation &&
		slices.Contains([]string{v1alpha1.ReasonActive, v1alpha1.ReasonSpecChanged, v1alpha1.ReasonTargetMissing, v1alpha1.ReasonRuleNotExceptable}, was.Reason)
}

// onChange are the exception's rules that won't judge the target until its spec changes.
func onChange(x *v1alpha1.GuardrailException, st state) []string {
	return slices.DeleteFunc(slices.Clone(x.Spec.RuleIDs), func(id string) bool { return slices.Contains(st.atRunTime, id) })
}

// active tells what the exception lifts, and what it needn't.
func active(x *v1alpha1.GuardrailException, st state, name, until string) string {
	var broken, kept []string
	for _, id := range st.atRunTime {
		isLifted := func(l guard.Lifted) bool { return l.Rule == id && l.Exception == x.Name }
		if slices.ContainsFunc(st.target.lifted, isLifted) {
			broken = append(broken, id)
		} else {
			kept = append(kept, id)
		}
	}
	text := fmt.Sprintf("It holds for %s until %s.", name, until)
	if len(broken) > 0 {
		text += " It lifts " + strings.Join(broken, ", ") + "."
	}
	if len(kept) > 0 {
		text += " It isn't needed for " + strings.Join(kept, ", ") + "."
	}
	return text
}

// target is an exception's target as it is stored now.
type target struct {
	found bool
	hash  string
	// lifted are the rules that exceptions keep from refusing the target.
	lifted []guard.Lifted
	// recheckAt is when they may say something else without any event; zero for never.
	recheckAt time.Time
}

// readTarget reads a target from the cache, and what the rules say of it.
func readTarget(ctx context.Context, reader client.Reader, g *guard.Guard, ref v1alpha1.ExceptionTarget) (target, error) {
	kind := kinds.Named(ref.Kind)
	if kind == nil || kind.RulesOver {
		return target{}, nil
	}
	object := kind.New()
	if err := reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, object); apierrors.IsNotFound(err) {
		return target{}, nil
	} else if err != nil {
		return target{}, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	hash, err := guard.SpecHash(object)
	if err != nil {
		return target{}, fmt.Errorf("hash the spec of %s %s: %w", ref.Kind, ref.Name, err)
	}
	_, verdict := guard.Admit(ctx, g, object)
	return target{found: true, hash: hash, lifted: verdict.Lifted, recheckAt: verdict.RecheckAt}, nil
}
