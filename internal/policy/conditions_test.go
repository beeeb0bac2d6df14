package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEachStateHasItsConditions(t *testing.T) {
	admitted := Acceptance{Allowed: true, RuleSet: "abc"}
	operative := Conditions{Acceptance: admitted, Changes: "nodes", Synced: true, Summary: "3 match."}
	with := func(change func(*Conditions)) Conditions {
		s := operative
		change(&s)
		return s
	}
	refused := &WriteErrors{Targets: 1, Sample: "a", Err: forbidden}
	failed := &WriteErrors{Targets: 1, Sample: "a", Err: errors.New("timeout")}
	for name, c := range map[string]struct {
		state Conditions
		want  []string
	}{
		"operative":   {operative, []string{"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=True Operative: 3 match."}},
		"it observes": {with(func(s *Conditions) { s.Observes = true }), []string{"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=True Observing: 3 match."}},
		"a Guardrail pauses it": {with(func(s *Conditions) { s.Paused.By = "Guardrail freeze pauses all new acts" }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=True Paused: Guardrail freeze pauses all new acts; undo goes on. 3 match.",
		}},
		"it observes while paused": {with(func(s *Conditions) { s.Observes, s.Paused.By = true, "Guardrail freeze pauses all new acts" }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=True Observing: 3 match.",
		}},
		"a Guardrail freezes it": {with(func(s *Conditions) {
			s.Paused = Pause{By: "Guardrail stop freezes everything, undo included", Frozen: true}
		}), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=True Frozen: Guardrail stop freezes everything, undo included. 3 match.",
		}},
		"it observes, is being deleted, and is frozen": {with(func(s *Conditions) {
			s.Observes, s.Deleting, s.Paused, s.Undoing = true, true, Pause{By: "Guardrail stop freezes everything, undo included", Frozen: true}, "2 nodes left."
		}), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=False Undoing: Guardrail stop freezes everything, undo included. 2 nodes left.",
			"Reconciling=True Undoing: Guardrail stop freezes everything, undo included. 2 nodes left.",
		}},
		"nobody can say what Guardrails forbid, which is why writes fail, too": {
			with(func(s *Conditions) {
				s.Paused, s.WriteErrors = Pause{By: "Unknown, which pauses all new acts: forbidden", Unknown: true}, failed
			}), []string{
				"Accepted=True Admitted: All rules admit it (rule set abc).",
				"Ready=Unknown GuardrailsUnknown: Unknown, which pauses all new acts: forbidden; undo goes on. 3 match.",
				"Reconciling=True GuardrailsUnknown: Unknown, which pauses all new acts: forbidden",
			},
		},
		"an exception lifts a rule": {with(func(s *Conditions) { s.Lifted = "GuardrailException x lifts a/b." }), []string{
			"Accepted=True Admitted: All other rules admit it (rule set abc). GuardrailException x lifts a/b.", "Ready=True Operative: 3 match.",
		}},
		"not yet synced": {with(func(s *Conditions) { s.Synced = false }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=Unknown Starting: The policy begins once all nodes are read.",
			"Reconciling=True Starting: The policy begins once all nodes are read.",
		}},
		"a rule refuses it": {with(func(s *Conditions) { s.Acceptance = Acceptance{Violated: true, Message: "no"} }), []string{
			"Accepted=False RuleViolated: no", "Ready=False RuleViolated: Autohealer does nothing new for the policy while the rules refuse it; see Accepted.",
			"Stalled=True RuleViolated: no",
		}},
		"a rule couldn't be evaluated": {with(func(s *Conditions) { s.Acceptance = Acceptance{Message: "no facts"}; s.Synced = false }), []string{
			"Accepted=False RulesNotEvaluated: no facts", "Ready=False RulesNotEvaluated: Autohealer does nothing new for the policy while the rules refuse it; see Accepted.",
			"Stalled=True RulesNotEvaluated: no facts",
		}},
		"its spec can't be read": {with(func(s *Conditions) { s.Unreadable = errors.New("bad for") }), []string{
			"Accepted=False InvalidSpec: bad for", "Ready=False InvalidSpec: Autohealer does nothing new for the policy while the rules refuse it; see Accepted.",
			"Stalled=True InvalidSpec: bad for",
		}},
		"the account lacks a right": {with(func(s *Conditions) { s.WriteErrors = refused }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).",
			"Ready=False Forbidden: Autohealer's account may not change nodes; see Stalled.", `Stalled=True Forbidden: nodes "a" is forbidden: no`,
		}},
		"writes fail": {with(func(s *Conditions) { s.WriteErrors = failed }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).",
			"Ready=Unknown Retrying: A write failed and is tried again: timeout", "Reconciling=True Retrying: timeout",
		}},
		"only some writes fail": {with(func(s *Conditions) { s.WriteErrors = &WriteErrors{Err: forbidden, Partial: true} }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=True Operative: 3 match.",
		}},
		"it is being deleted": {with(func(s *Conditions) { s.Deleting, s.Undoing = true, "2 nodes left." }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=False Undoing: 2 nodes left.", "Reconciling=True Undoing: 2 nodes left.",
		}},
		"it is being deleted, and what is left isn't known": {with(func(s *Conditions) { s.Deleting, s.Synced = true, false }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=False Undoing: The policy is deleted once all that it did is undone.",
			"Reconciling=True Undoing: The policy is deleted once all that it did is undone.",
		}},
		"it is being deleted, and was changed to what a rule refuses": {
			with(func(s *Conditions) { s.Deleting, s.Acceptance = true, Acceptance{Violated: true, Message: "no"} }), []string{
				"Accepted=False RuleViolated: no", "Ready=False Undoing: The policy is deleted once all that it did is undone.",
				"Reconciling=True Undoing: The policy is deleted once all that it did is undone.",
			},
		},
		"it is being deleted, and the account may not undo it": {with(func(s *Conditions) { s.Deleting, s.Undoing, s.WriteErrors = true, "2 nodes left.", refused }), []string{
			"Accepted=True Admitted: All rules admit it (rule set abc).", "Ready=False Undoing: 2 nodes left.", "Reconciling=True Undoing: 2 nodes left.",
			`Stalled=True Forbidden: nodes "a" is forbidden: no`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// What an earlier state left, and what the kind adds itself.
			conditions := []metav1.Condition{{Type: "Stalled", Status: "True"}, {Type: "Reconciling", Status: "True"}, {Type: "LimitReached", Status: "True"}}
			c.state.Apply(&conditions, 7)
			got := map[string]bool{}
			for _, cond := range conditions {
				if cond.Type == "LimitReached" {
					continue
				}
				if cond.ObservedGeneration != 7 {
					t.Errorf("%s is of generation %d", cond.Type, cond.ObservedGeneration)
				}
				got[fmt.Sprintf("%s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message)] = true
			}
			for _, want := range c.want {
				if !got[want] {
					t.Errorf("missing: %s", want)
				}
				delete(got, want)
			}
			for extra := range got {
				t.Errorf("too much: %s", extra)
			}
		})
	}
}

func TestASentenceHasOneFullStop(t *testing.T) {
	if got := Sentence("1 held back", "it would violate the pod's disruption budget."); got != "1 held back; it would violate the pod's disruption budget." {
		t.Error(got)
	}
}

func TestALongNoteIsCutBetweenLetters(t *testing.T) {
	if got := Truncate(strings.Repeat("ä", 600)); len(got) > 1024 || !strings.HasSuffix(got, "ä …") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}
