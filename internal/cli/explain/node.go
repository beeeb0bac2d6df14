// Package explain says in words what a planner decided and why: from what was observed, over times and limits, to what is done
// or the reason why it isn't. It decides nothing by itself.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// Node says how all ConditionSets stand to a node.
func Node(v snapshot.NodeView) string {
	t := &explanation{now: v.At.Now}
	t.line(0, "node/%s", v.Node)
	if v.Broken != nil {
		t.line(1, "The record of what Autohealer did here, the annotation %s, can't be read, so nothing is done and nothing undone. To fix it, %s", v1alpha1.AnnotationOwnedTaints, v.Broken.RepairSteps())
	}
	if h := v.Plan.Node.Hold; h.Active(v.At.Now, v.At.Server) {
		t.line(1, "Left alone: %s. What was done is undone all the same.", h.Message(v.At.Now))
	}
	for _, s := range v.SetStatuses {
		t.set(v, s)
	}
	for _, o := range v.Orphans {
		t.line(1, "ConditionSet %s, which %s: taint %s:%s %s", o.Name, missingPolicy(v.Unknown), o.Key, o.Effect, t.since(o.Since.Time))
		if v.Unknown != nil {
			continue
		}
		if o.Stays {
			t.line(2, "No ConditionSet declares the key, so it isn't known whose the taint is, and the manager leaves it. To take it off: kubectl autohealer undo node/%s", v.Node)
			continue
		}
		t.line(2, "It is undone once the set was found missing twice, a minute apart.")
	}
	t.unknown("ConditionSets", v.Unknown)
	if len(v.SetStatuses)+len(v.Orphans) == 0 && v.Unknown == nil {
		t.line(1, "No ConditionSet is about this node, and Autohealer did nothing to it.")
	}
	return t.out.String()
}

// missingPolicy says of a policy that isn't stored what is known of it.
func missingPolicy(unknown error) string {
	if unknown != nil {
		return "isn't among the facts"
	}
	return "does not exist"
}

// unknown says that not all is known of what policies of a kind do.
func (t *explanation) unknown(plural string, why error) {
	if why != nil {
		t.line(1, "Not all is known of what %s do: %v.", plural, why)
	}
}

// set tells of one set: what it did, what it saw, what it would do, and what is in the way.
func (t *explanation) set(v snapshot.NodeView, s condition.SetStatus) {
	t.line(1, "ConditionSet %s: %s", s.Set.Name, t.state(s))
	for _, m := range s.Members {
		t.line(2, "%s", t.member(m, s))
	}
	steps := slices.DeleteFunc(slices.Clone(v.Plan.Steps), func(step condition.Step) bool { return step.Set != s.Set.UID })
	for _, step := range steps {
		t.line(2, "Now: %s", verb(step))
	}
	for _, step := range v.Plan.Frozen {
		if step.Set == s.Set.UID {
			t.line(2, "Not now, since everything is frozen: %s", verb(step))
		}
	}
	for _, h := range v.Plan.Holds {
		if h.Set == s.Set.UID {
			t.line(2, "Held back: %s (%s)%s", h.Message, h.Reason, t.waits(h))
		}
	}
	if v.Plan.NeedsEvidence && s.Set.Effect == "NoExecute" && s.Match.Phase == condition.Matching {
		t.line(2, "Now: an eviction is due; the manager first reads which pods run here that nothing may evict")
	}
	if len(steps) == 0 {
		t.nextChange(s)
	}
	if text := v.Explanations[s.Set.UID]; text != "" {
		t.line(2, "The manager says: %s", text)
	}
}

// state is what the set did here, or how it stands to the node.
func (t *explanation) state(s condition.SetStatus) string {
	did := ""
	if s.Claim != nil {
		did = fmt.Sprintf("taint %s:%s %s", s.Claim.Key, s.Claim.Effect, t.since(s.Claim.Since.Time))
		if !s.TaintPresent {
			did += ", which someone else removed"
		}
		did += "; "
	}
	switch {
	case s.State == lifecycle.Observing:
		did += "only observes; "
	case s.State == lifecycle.Deleted:
		did += "is being deleted; "
	case s.State == lifecycle.Refused:
		did += "a rule refuses it; "
	case s.State.IsFrozen():
		did += "not in force yet; "
	}
	switch s.Match.Phase {
	case condition.Matching:
		return did + "matches " + t.since(s.Match.Since)
	case condition.Clear:
		return did + "does not match"
	case condition.Doubtful:
		return did + "whether it matches isn't known, so nothing is done and nothing undone"
	}
	return did + "is not about this node any more"
}

func (t *explanation) member(m condition.MemberStatus, s condition.SetStatus) string {
	if !m.Reported {
		return fmt.Sprintf("%s: the node does not report it; the set asks for %s", m.Type, m.Status)
	}
	text := fmt.Sprintf("%s is %s %s", m.Type, m.Observation.Status, t.since(m.Observation.Transition))
	switch {
	case !m.Alive:
		text += fmt.Sprintf(", but its reporter is silent (%s; staleAfter %s)", t.since(m.Observation.Heartbeat), duration.HumanDuration(s.Set.StaleAfter))
	case m.Phase == condition.Doubtful:
		text += fmt.Sprintf(", which says neither that the node is sick nor that it is well; the set asks for %s", m.Status)
	case m.Phase == condition.Clear:
		text += fmt.Sprintf("; the set asks for %s", m.Status)
	}
	return text
}

// nextChange says what time alone will bring, when nothing else is to be done now.
func (t *explanation) nextChange(s condition.SetStatus) {
	switch {
	case s.Claim == nil && s.Match.Phase == condition.Matching && t.now.Before(s.Match.DueAt):
		t.line(2, "It acts %s, when that has lasted for %s", t.at(s.Match.DueAt), duration.HumanDuration(s.Set.For))
	case s.Claim != nil && s.Match.Phase == condition.Clear && t.now.Before(s.Match.ClearAt):
		why := "recoverAfter"
		if s.RecoverAfter > s.Set.RecoverAfter {
			why = "longer than recoverAfter, since it flaps"
		}
		t.line(2, "The taint goes %s, when that has lasted for %s (%s)", t.at(s.Match.ClearAt), duration.HumanDuration(s.RecoverAfter), why)
	case s.Claim != nil && s.Match.Phase == condition.Matching:
		after := "at once"
		if s.RecoverAfter > 0 {
			after = "after " + duration.HumanDuration(s.RecoverAfter)
		}
		t.line(2, "The taint goes %s when %s", after, recovery(s.Set.Members))
	}
}

// recovery says what a reporter must write for the node to count as well: Unknown, for one, says nothing.
func recovery(members []condition.Member) string {
	opposite := map[corev1.ConditionStatus]string{corev1.ConditionTrue: "False", corev1.ConditionFalse: "True", corev1.ConditionUnknown: "True or False"}
	var ends []string
	for _, m := range members {
		ends = append(ends, m.Type+" is "+opposite[m.Status])
	}
	return strings.Join(ends, ", or ")
}

func verb(step condition.Step) string {
	switch step.Verb {
	case condition.Taint:
		return fmt.Sprintf("taint %s:%s (%s)", step.Key, step.To, step.Reason)
	case condition.Escalate, condition.Deescalate:
		return fmt.Sprintf("change %s from %s to %s (%s)", step.Key, step.From, step.To, step.Reason)
	case condition.Untaint:
		return fmt.Sprintf("remove %s:%s (%s)", step.Key, step.From, step.Reason)
	}
	return fmt.Sprintf("correct the record of %s (%s)", step.Key, step.Reason)
}

func (t *explanation) waits(h condition.Hold) string {
	if h.At.IsZero() {
		return ""
	}
	return "; in line " + t.since(h.At)
}

// explanation is the text that is being written.
type explanation struct {
	out strings.Builder
	now time.Time
}

func (t *explanation) line(depth int, format string, args ...any) {
	t.out.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&t.out, format, args...)
	t.out.WriteString("\n")
}

// since tells when something began, and how long ago.
func (t *explanation) since(moment time.Time) string {
	if moment.IsZero() {
		return "at a time that is not known"
	}
	return fmt.Sprintf("since %s (%s)", moment.UTC().Format(time.RFC3339), duration.HumanDuration(max(0, t.now.Sub(moment))))
}

// at tells when something will be, and in how long.
func (t *explanation) at(moment time.Time) string {
	return fmt.Sprintf("at %s (in %s)", moment.UTC().Format(time.RFC3339), duration.HumanDuration(max(0, moment.Sub(t.now))))
}

// nameIn is a policy's name as one has it in a namespace.
func nameIn(policy metav1.Object, namespace string) string {
	if policy.GetNamespace() == namespace {
		return policy.GetName()
	}
	return policy.GetNamespace() + "/" + policy.GetName()
}
