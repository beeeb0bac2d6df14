package guard

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// sets are stored ConditionSets.
type sets struct {
	objects  []*v1alpha1.ConditionSet
	unsynced bool
	// ends is called before each object.
	ends func(i int)
}

func (s sets) Synced(context.Context, string) bool { return !s.unsynced }

func (s sets) Get(_ context.Context, kind, _, name string) (client.Object, error) {
	for _, o := range s.objects {
		if kind == "ConditionSet" && o.Name == name {
			return o, nil
		}
	}
	return nil, nil
}

func (s sets) All(_ context.Context, kind string) (iter.Seq[client.Object], error) {
	return func(yield func(client.Object) bool) {
		for i, o := range s.objects {
			if s.ends != nil {
				s.ends(i)
			}
			if kind == "ConditionSet" && !yield(o) {
				return
			}
		}
	}, nil
}

// someSets are n sets of which the first evict.
func someSets(t *testing.T, n, evicting int) sets {
	t.Helper()
	var s sets
	for i := range n {
		spec := goodSpec
		if i < evicting {
			spec = evictingSpec
		}
		cs := stored(t, spec)
		cs.Name = fmt.Sprintf("s%02d", i)
		s.objects = append(s.objects, cs)
	}
	return s
}

// guardOver is a guard over stored sets.
func guardOver(t *testing.T, s sets) *Guard {
	t.Helper()
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	return under(t, compiled, Options{Stored: s})
}

// warningOf is the warning of a rule, "" when there is none.
func warningOf(v Verdict, rule string) string {
	for _, w := range v.Warnings() {
		if strings.HasPrefix(w, rule+": ") {
			return w
		}
	}
	return ""
}

func reviewRail(t *testing.T, ctx context.Context, g *Guard, old, spec string) Verdict { //nolint:revive // t comes first in tests
	t.Helper()
	whole := func(spec string) map[string]any {
		content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: platform}}")
		content["spec"] = object(t, spec)
		return content
	}
	req := creating(t, whole(spec))
	if old != "" {
		req.Operation, req.OldObject = admissionv1.Update, jsonOf(t, whole(old))
	}
	return g.Review(ctx, req)
}

func TestANewRuleThatWouldStopStoredPoliciesNamesThem(t *testing.T) {
	const (
		warns      = `{rules: [{name: no-eviction, kinds: [ConditionSet], severity: Warn, expression: "object.spec.effect != 'NoExecute'"}]}`
		overPlan   = `{rules: [{name: few, kinds: [ConditionSet], onFactsUnavailable: Deny, expression: "plan.wouldTaint < 1"}]}`
		reworded   = `{rules: [{name: no-eviction, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'", messageExpression: "'no'"}]}`
		andAnother = `{rules: [{name: no-eviction, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'"}, {name: other, kinds: [ConditionSet], expression: "object.spec.type == 'KubeletUnhealthy'"}]}`
		docs       = " (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrail-refuses-stored)"
	)
	for name, c := range map[string]struct {
		stored    sets
		old, spec string
		want      string
	}{
		"two of three": {someSets(t, 3, 2), "", noEviction,
			"guardrail/refuses-stored: its rules would refuse 2 of 3 stored ConditionSets, which then do nothing new: ConditionSet/s00, ConditionSet/s01; correct these first, or begin with severity: Warn" + docs},
		"twenty are named": {someSets(t, 30, 25), "", noEviction,
			"guardrail/refuses-stored: its rules would refuse 25 of 30 stored ConditionSets, which then do nothing new: " + strings.Join(names(20), ", ") + " and 5 more; correct these first, or begin with severity: Warn" + docs},
		"none":                             {someSets(t, 3, 0), "", noEviction, ""},
		"a rule that warns stops none":     {someSets(t, 3, 2), "", warns, ""},
		"a rule over the plan stops none":  {someSets(t, 3, 2), "", overPlan, ""},
		"a rule that was there before":     {someSets(t, 3, 2), noEviction, strings.Replace(noEviction, "{rules", "{paused: true, rules", 1), ""},
		"only its words changed":           {someSets(t, 3, 2), noEviction, reworded, ""},
		"from Warn to Deny":                {someSets(t, 3, 1), warns, noEviction, "guardrail/refuses-stored: its rules would refuse 1 of 3 stored ConditionSets, which then do nothing new: ConditionSet/s00; correct these first, or begin with severity: Warn" + docs},
		"only the new one of two counts":   {someSets(t, 3, 2), noEviction, andAnother, "guardrail/refuses-stored: its rules would refuse 1 of 3 stored ConditionSets, which then do nothing new: ConditionSet/s02; correct these first, or begin with severity: Warn" + docs},
		"what is stored isn't known (yet)": {sets{unsynced: true}, "", noEviction, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := reviewRail(t, t.Context(), guardOver(t, c.stored), c.old, c.spec)
			if got := warningOf(v, "guardrail/refuses-stored"); !v.Allowed || got != c.want {
				t.Errorf("allowed %v: %s\n got %s\nwant %s", v.Allowed, v.Message(), got, c.want)
			}
			skipped := slices.ContainsFunc(v.Skipped, func(s Skip) bool { return s.Rule == "guardrail/refuses-stored" })
			if skipped != c.stored.unsynced {
				t.Errorf("skipped: %v", v.Skipped)
			}
		})
	}
}

func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("ConditionSet/s%02d", i))
	}
	return all
}

func TestCountingStoredPoliciesEndsWithTheRequestsTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := someSets(t, 1000, 1000)
	s.ends = func(i int) {
		if i == 10 {
			cancel()
		}
		if i > 11 {
			t.Fatalf("looked at object %d", i)
		}
	}
	v := reviewRail(t, ctx, guardOver(t, s), "", noEviction)
	if !strings.Contains(strings.Join(v.Warnings(), "\n"), "guardrail/refuses-stored") {
		t.Errorf("says nothing of those that it did look at: %q", v.Warnings())
	}
}

func TestDisputedConditionTypesAreNamed(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "gpu-team", `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`), gr(t, "platform", `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`)})
	v := reviewRail(t, t.Context(), g, "", `{conditionTypes: [{type: GPUHealthy, healthyStatus: "False"}]}`)
	const want = "guardrail/disputed-condition-type: another Guardrail declares the opposite of GPUHealthy (Guardrail gpu-team); while they disagree both statuses count as healthy, so a ConditionSet that asks for nothing else is refused, and a stored one does nothing new. Agree on one healthyStatus (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrail-disputed-condition-type)"
	if got := warningOf(v, "guardrail/disputed-condition-type"); !v.Allowed || got != want {
		t.Errorf("allowed %v: %s\n got %s\nwant %s", v.Allowed, v.Message(), got, want)
	}
}

func TestAnExceptionIsToldTheRightHash(t *testing.T) {
	s := someSets(t, 2, 0)
	s.objects[1].Spec.Type = "Other"
	s.objects[1].Annotations = map[string]string{"autohealer.resourcestack.com/excepted-rules": "a/b, conditionset/matches-healthy-nodes"}
	g := guardOver(t, s)
	right, err := SpecHash(stored(t, goodSpec))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ target, hash, rule, want string }{
		"the right hash": {"s00", right, "guardrailexception/other-hash", ""},
		"another hash": {"s00", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "guardrailexception/other-hash",
			"guardrailexception/other-hash: the spec of ConditionSet s00 has the hash " + right + ", not 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef; the exception lifts nothing until they are equal. If it is for the object as it is now, write specHash: " + right + " (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrailexception-other-hash)"},
		"no such object": {"s99", right, "guardrailexception/target-missing",
			"guardrailexception/target-missing: there is no ConditionSet s99 yet; the exception holds once there is one whose spec has the hash " + right + " (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrailexception-target-missing)"},
		"no such object, so no hash either": {"s99", right, "guardrailexception/other-hash", ""},
		"a rule that the policy has too": {"s99", right, "guardrailexception/unmarked-target",
			"guardrailexception/unmarked-target: the API server itself refuses what breaks conditionset/matches-healthy-nodes, because its policy can not see exceptions; give ConditionSet s99 the annotation autohealer.resourcestack.com/excepted-rules: conditionset/matches-healthy-nodes (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrailexception-unmarked-target)"},
		"a target that is stored with its spec already":    {"s00", right, "guardrailexception/unmarked-target", ""},
		"a target that gets another spec and is annotated": {"s01", right, "guardrailexception/unmarked-target", ""},
	} {
		t.Run(name, func(t *testing.T) {
			content := object(t, `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: GuardrailException, metadata: {name: x}, spec: {ruleIDs: [`+healthyRule+
				`], targetRef: {kind: ConditionSet, name: `+c.target+`}, specHash: "`+c.hash+`", reason: "it is so, OPS-1", expiresAt: "2026-11-22T12:00:00Z"}}`)
			v := g.Review(t.Context(), creating(t, content))
			if got := warningOf(v, c.rule); !v.Allowed || got != c.want {
				t.Errorf("allowed %v: %s\n got %s\nwant %s", v.Allowed, v.Message(), got, c.want)
			}
		})
	}
}
