package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// gr is a Guardrail of a spec in YAML, stored at noon.
func gr(t testing.TB, name, spec string) *v1alpha1.Guardrail {
	t.Helper()
	g := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(noon)}}
	if err := yaml.UnmarshalStrict([]byte(spec), &g.Spec); err != nil {
		t.Fatal(err)
	}
	return g
}

const noEviction = `{rules: [{name: no-eviction, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'", messageExpression: "'write NoSchedule for ' + object.spec.type"}]}`

const evictingSpec = "{type: KubeletUnhealthy, effect: NoExecute, taintKey: example.com/kubelet, for: 5m, conditions: {KubeletUnhealthy: {status: true}}}"

// stored is an object as the controllers have it.
func stored(t testing.TB, spec string) *v1alpha1.ConditionSet {
	t.Helper()
	cs := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u1", Generation: 1}}
	if err := yaml.UnmarshalStrict([]byte(spec), &cs.Spec); err != nil {
		t.Fatal(err)
	}
	return cs
}

func TestARuleOfAGuardrailJudgesAtAdmissionAndAtRunTimeUntilTheGuardrailGoes(t *testing.T) {
	g := newTestGuard(t, nil)
	if v := create(t, g, evictingSpec); !v.Allowed {
		t.Fatalf("refused before: %s", v.Message())
	}
	results := g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", noEviction)})
	if len(results) != 1 || results[0].Name != "platform" || results[0].Rules != 1 || len(results[0].Errors) != 0 || !results[0].Verdict.Allowed {
		t.Errorf("got %+v", results)
	}
	const want = "platform/no-eviction: write NoSchedule for KubeletUnhealthy (Guardrail platform)"
	if v := create(t, g, evictingSpec); v.Allowed || v.Message() != want {
		t.Errorf("at admission: allowed %v, %s", v.Allowed, v.Message())
	}
	if validated, v := Admit(t.Context(), g, stored(t, evictingSpec)); v.Allowed || validated.Valid() || v.Message() != want {
		t.Errorf("at run time: allowed %v, %s", v.Allowed, v.Message())
	}
	g.SetGuardrails(nil)
	if _, v := Admit(t.Context(), g, stored(t, evictingSpec)); !v.Allowed {
		t.Errorf("the Guardrail is gone, and its rule still refuses: %s", v.Message())
	}
}

func TestCheckGuardrail(t *testing.T) {
	long := "object.spec.taintKey == '" + strings.Repeat("x", 100) + "' && object.spec.efect == '" + strings.Repeat("y", 100) + "'"
	loops := "object.spec.conditions.all(a, object.spec.conditions.all(b, object.spec.conditions.all(c, object.spec.conditions.all(d, a == b || c == d))))"
	for name, c := range map[string]struct {
		rule string
		want []RuleError
	}{
		"a rule": {`{name: r, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'"}`, nil},
		"a rule for two kinds": {
			`{name: r, kinds: [ConditionSet, Guardrail], expression: "has(object.metadata.labels) && 'team' in object.metadata.labels"}`, nil,
		},
		"a rule over all roots": {
			`{name: r, kinds: [ConditionSet], expression: "plan.wouldTaint < limits.maxTaintedNodes.nodes && facts.synced && request.userInfo.username != '' && oldObject == null && authorizer.serviceAccount('a', 'b').group('').resource('nodes').check('patch').allowed() && variables.evicts"}`, nil,
		},
		"a rule over long fields": {`{name: r, kinds: [ConditionSet], expression: "has(object.metadata.annotations) && 'owner' in object.metadata.annotations"}`, nil},
		"a misspelt field": {
			`{name: r, kinds: [ConditionSet], expression: "object.spec.efect != 'NoExecute'"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:12: undefined field 'efect'\n | object.spec.efect != 'NoExecute'\n | ...........^"}},
		},
		"a misspelt field on the second line": {
			`{name: r, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute' ||\n  object.spec.taintkey != 'a'"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "2:14: undefined field 'taintkey'\n |   object.spec.taintkey != 'a'\n | .............^"}},
		},
		"a long line is cut around the place": {
			`{name: r, kinds: [ConditionSet], expression: "` + long + `"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:142: undefined field 'efect'\n | …xxxxxxxxxxxxxxxxxxxxxxxx' && object.spec.efect == 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyy…\n | .........................................^"}},
		},
		"a field that only another of its kinds has": {
			`{name: r, kinds: [ConditionSet, Guardrail], expression: "!has(object.spec.paused) || !object.spec.paused"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:5: undefined field 'paused'\n | !has(object.spec.paused) || !object.spec.paused\n | ....^"}},
		},
		"a misspelt field in the message": {
			`{name: r, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'", messageExpression: "object.spec.typ"}`,
			[]RuleError{{"r", "messageExpression", "ConditionSet", "1:12: undefined field 'typ'\n | object.spec.typ\n | ...........^"}},
		},
		"a constant": {
			`{name: r, kinds: [ConditionSet], expression: "object.spec.effect == 'x' || true"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:1: is constant, so it admits all objects or none\n | object.spec.effect == 'x' || true\n | ^"}},
		},
		"no boolean": {
			`{name: r, kinds: [ConditionSet], expression: "object.spec.effect"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:1: returns string, want bool\n | object.spec.effect\n | ^"}},
		},
		"a dyn": {
			`{name: r, kinds: [ConditionSet], expression: "dyn(object.spec).effect"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:1: returns dyn, want bool\n | dyn(object.spec).effect\n | ^"}},
		},
		"what isn't judged when it changes": {
			`{name: r, kinds: [ConditionSet], expression: "size(object.metadata.finalizers) == 0"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:21: undefined field 'finalizers'; of metadata a rule may read annotations, creationTimestamp, generateName, generation, labels, name, namespace, uid: a change of anything else isn't judged\n | size(object.metadata.finalizers) == 0\n | ....................^"}},
		},
		"nor the status": {
			`{name: r, kinds: [WeederConfig], expression: "!has(oldObject.status)"}`,
			[]RuleError{{"r", "expression", "WeederConfig", "1:5: undefined field 'status'; of an object a rule may read apiVersion, kind, metadata, spec: a change of anything else isn't judged\n | !has(oldObject.status)\n | ....^"}},
		},
		"an escaped keyword": {
			`{name: r, kinds: [ConditionSet], expression: "has(object.spec.__for__)"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:4: write for instead of __for__\n | has(object.spec.__for__)\n | ...^"}},
		},
		"too many loops": {
			`{name: r, kinds: [ConditionSet], expression: "` + loops + `"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:1: may cost 489332, at most 100000 allowed; bound its loops and texts\n | object.spec.conditions.all(a, object.spec.conditions.all(b, object.spec.conditio…\n | ^"}},
		},
		"nine questions to the authorizer": {
			`{name: r, kinds: [ConditionSet], expression: "[1, 2, 3, 4, 5, 6, 7, 8, 9].all(i, authorizer.serviceAccount('a', string(i)).group('').resource('nodes').check('patch').allowed())"}`,
			[]RuleError{{"r", "expression", "ConditionSet", "1:1: may cost 3150101, at most 2900000 allowed; bound its loops and texts\n | [1, 2, 3, 4, 5, 6, 7, 8, 9].all(i, authorizer.serviceAccount('a', string(i)).gro…\n | ^"}},
		},
		"an unknown kind": {
			`{name: r, kinds: [ConditionSet, Node], expression: "has(object.metadata.labels)"}`,
			[]RuleError{{"r", "kinds", "Node", `there is no kind "Node"; write ` + strings.Join(slices.Sorted(slices.Values(kinds.Names(kinds.All))), ", ")}},
		},
		"a kind without a plan": {
			`{name: r, kinds: [GuardrailException], expression: "plan.wouldTaint > 3"}`,
			[]RuleError{{"r", "expression", "GuardrailException", "1:5: undefined field 'wouldTaint'\n | plan.wouldTaint > 3\n | ....^"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := newTestGuard(t, nil).CheckGuardrail(gr(t, "platform", "{rules: ["+c.rule+"]}"))
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
		})
	}
}

func TestARuleThatCannotBeEvaluatedRefusesWhatItWouldJudge(t *testing.T) {
	broken := func(severity string) *v1alpha1.Guardrail {
		return gr(t, "platform", `{rules: [{name: typo, kinds: [ConditionSet], severity: `+severity+`, expression: "object.spec.efect != 'NoExecute'"}]}`)
	}
	const want = "platform/typo: not checked: Guardrail platform, rule typo, expression for ConditionSet, 1:12: undefined field 'efect' | object.spec.efect != 'NoExecute' | ...........^"
	g := newTestGuard(t, nil)
	results := g.SetGuardrails([]*v1alpha1.Guardrail{broken("Deny")})
	if results[0].Rules != 0 || len(results[0].Errors) != 1 || results[0].Verdict.Allowed || !slices.Equal(results[0].Verdict.RuleIDs(), []string{"guardrail/rules-compile"}) {
		t.Errorf("got %+v", results[0])
	}
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); v.Allowed || v.Message() != want {
		t.Errorf("at run time: allowed %v, %s", v.Allowed, v.Message())
	}
	if v := create(t, g, goodSpec); v.Allowed || v.Message() != want {
		t.Errorf("at admission: allowed %v, %s", v.Allowed, v.Message())
	}
	g.SetGuardrails([]*v1alpha1.Guardrail{broken("Warn")})
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); !v.Allowed || v.Warnings()[0] != want {
		t.Errorf("with severity Warn: allowed %v, %q", v.Allowed, v.Warnings())
	}
}

func TestWhoeverPausesIsNotStoppedByAnOldMistake(t *testing.T) {
	const typo = `rules: [{name: typo, kinds: [ConditionSet], expression: "object.spec.efect != 'NoExecute'"}]`
	g := newTestGuard(t, nil)
	update := func(old, spec string) Verdict {
		objectOf := func(spec string) map[string]any {
			content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: platform}}")
			content["spec"] = object(t, spec)
			return content
		}
		return g.Review(t.Context(), updating(t, objectOf(old), objectOf(spec)))
	}
	v := update("{"+typo+"}", "{paused: true, "+typo+"}")
	if !v.Allowed || !strings.HasPrefix(v.Warnings()[0], "guardrail/rules-still-broken: rule typo, expression for ConditionSet, 1:12: undefined field 'efect' | object.spec.efect") {
		t.Errorf("allowed %v: %s %q", v.Allowed, v.Message(), v.Warnings())
	}
	for _, warning := range v.Warnings() {
		if strings.Contains(warning, "\n") {
			t.Errorf("the API server drops a warning of two lines: %q", warning)
		}
	}
	v = update("{}", "{"+typo+"}")
	const want = "guardrail/rules-compile: rule typo, expression for ConditionSet, 1:12: undefined field 'efect'\n | object.spec.efect != 'NoExecute'\n | ...........^\n" +
		"Correct the expression; the page has the variables and their fields (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrail-rules-compile)"
	if v.Allowed || v.Message() != want {
		t.Errorf("allowed %v:\n%s\nwant\n%s", v.Allowed, v.Message(), want)
	}
}

func TestAMistakenRuleOverGuardrailsDoesNotKeepItsOwnGuardrailFromRepair(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "strict", `{rules: [{name: never, kinds: [Guardrail], expression: "has(object.spec.paused) && object.spec.paused"}]}`)})
	for name, allowed := range map[string]bool{"strict": true, "other": false} {
		content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: "+name+"}, spec: {}}")
		v := g.Review(t.Context(), updating(t, object(t, "{metadata: {name: "+name+"}, spec: {paused: true}}"), content))
		if v.Allowed != allowed {
			t.Errorf("%s: allowed %v: %s", name, v.Allowed, v.Message())
		}
	}
	if v := g.Review(t.Context(), Request{Operation: admissionv1.Delete}); !v.Allowed {
		t.Error("a deletion was refused")
	}
}

// costly has rules of about 60,000 each, which is below the bound of one rule.
func costly(t *testing.T, name string, rules int, created time.Time) *v1alpha1.Guardrail {
	t.Helper()
	g := gr(t, name, "{}")
	g.CreationTimestamp = metav1.NewTime(created)
	for i := range rules {
		g.Spec.Rules = append(g.Spec.Rules, v1alpha1.GuardrailRule{Name: fmt.Sprintf("r%02d", i), Kinds: []string{"ConditionSet"},
			Expression: "object.spec.conditions.all(a, object.spec.conditions.all(b, object.spec.conditions.all(c, a != b || b != c || a != 'no')))"})
	}
	return g
}

func TestRulesOfAllGuardrailsTogetherHaveABoundAndTheOldestHold(t *testing.T) {
	g := newTestGuard(t, nil)
	one := g.CheckGuardrail(costly(t, "one", 1, noon))
	if len(one) != 0 {
		t.Fatalf("one rule is too much already: %v", one)
	}
	older, younger := costly(t, "b-older", 10, noon), costly(t, "a-younger", 100, noon.Add(time.Hour))
	results := g.SetGuardrails([]*v1alpha1.Guardrail{younger, older})
	if len(results[1].Errors) != 0 || results[1].Rules != 10 {
		t.Errorf("the older Guardrail has errors: %v", results[1].Errors)
	}
	if n := len(results[0].Errors); n == 0 || results[0].Rules != 100-n || !strings.HasPrefix(results[0].Errors[0].Message, "with the rules before it, those of older Guardrails included, it may cost 1") {
		t.Errorf("%d errors, %d rules in force: %v", n, results[0].Rules, results[0].Errors[:min(1, n)])
	}
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); v.Allowed || !strings.HasPrefix(v.RuleIDs()[0], "a-younger/") {
		t.Errorf("allowed %v, by %v", v.Allowed, v.RuleIDs())
	}
}

// storedRail is a Guardrail as admission reads it.
func storedRail(t *testing.T, g *v1alpha1.Guardrail) map[string]any {
	t.Helper()
	stored, err := judgedOf(kindGuardrail, g)
	if err != nil {
		t.Fatal(err)
	}
	return stored.content
}

// rulesThatFit is how many costly rules the common budget holds.
func rulesThatFit(t *testing.T, g *Guard) int {
	t.Helper()
	return 100 - len(g.CheckGuardrail(costly(t, "full", 100, noon)))
}

func TestAnUpdateDoesNotBreakTheRulesOfYoungerGuardrails(t *testing.T) {
	g := newTestGuard(t, nil)
	fit := rulesThatFit(t, g)
	before, after := costly(t, "older", 1, noon), costly(t, "older", fit, noon)
	younger := costly(t, "younger", fit-1, noon.Add(time.Hour))
	review := func(old, is *v1alpha1.Guardrail) Verdict {
		req := creating(t, storedRail(t, is))
		if old != nil {
			req.Operation, req.OldObject = admissionv1.Update, jsonOf(t, storedRail(t, old))
		}
		return g.Review(t.Context(), req)
	}
	g.SetGuardrails([]*v1alpha1.Guardrail{before})
	if v := review(before, after); !v.Allowed {
		t.Fatalf("without another Guardrail: %s", v.Message())
	}
	if results := g.SetGuardrails([]*v1alpha1.Guardrail{before, younger}); len(results[1].Errors) > 0 {
		t.Fatalf("both don't fit: %v", results[1].Errors)
	}
	v := review(before, after)
	if got := v.RuleIDs(); !slices.Equal(got, []string{"guardrail/displaces-others"}) || !strings.Contains(v.Message(), "would be admitted: Guardrail younger (r") || !strings.Contains(v.Message(), "; for ConditionSet). Write cheaper") {
		t.Errorf("allowed %v: %s", v.Allowed, v.Message())
	}
	// It was stored all the same, while the webhook was away: repairing it isn't refused, nor is what breaks nothing further.
	g.SetGuardrails([]*v1alpha1.Guardrail{after, younger})
	for name, to := range map[string]*v1alpha1.Guardrail{"repair": before, "a step towards it": costly(t, "older", fit-1, noon)} {
		if v := review(after, to); !v.Allowed {
			t.Errorf("%s: %s", name, v.Message())
		}
	}
}

func TestARuleThatANewOneBreaksIsNoOldMistake(t *testing.T) {
	g := newTestGuard(t, nil)
	full := costly(t, "org", rulesThatFit(t, g), noon)
	fuller := costly(t, "org", len(full.Spec.Rules)+1, noon)
	slices.Reverse(fuller.Spec.Rules) // the new one comes first, and the last no longer fits
	g.SetGuardrails([]*v1alpha1.Guardrail{full})
	v := g.Review(t.Context(), updating(t, storedRail(t, full), storedRail(t, fuller)))
	if v.Allowed || !strings.HasPrefix(v.Message(), "guardrail/rules-compile: rule r00, expression for ConditionSet, with the rules before it") {
		t.Errorf("allowed %v: %s %q", v.Allowed, v.Message(), v.Warnings())
	}
}

func TestRulesOfGuardrailsDoNotUseUpWhatTheBuiltInOnesNeed(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", noEviction)})
	rules := g.rules.Load()
	e, err := g.admission(t.Context(), rules, rules.kinds["ConditionSet"], creating(t, conditionSet(t, evictingSpec)))
	if err != nil {
		t.Fatal(err)
	}
	e.small, e.remaining.units = false, 1
	v := e.atAdmission()
	if got := v.RuleIDs(); !slices.Contains(got, "platform/no-eviction") || !slices.Contains(got, "conditionset/matches-healthy-nodes") {
		t.Errorf("with a spent budget of the built-in rules refused by %v; want those, and the Guardrail's by its own budget", got)
	}
	for _, s := range v.Skipped {
		if s.Rule == "platform/no-eviction" {
			t.Errorf("the Guardrail's rule was not evaluated: %s", s)
		}
	}
}

func TestARuleThatJudgesChangesOnlyIsToldOf(t *testing.T) {
	v := reviewRail(t, t.Context(), newTestGuard(t, nil), "", `{rules: [
		{name: by-operators, kinds: [ConditionSet, WeederConfig], expression: "request.userInfo.username == 'op'"},
		{name: small-steps, kinds: [ConditionSet], expression: "oldObject == null || facts.nodes > 3 && plan.wouldTaint < 3"},
		{name: entitled, kinds: [ConditionSet], expression: "authorizer.group('').resource('nodes').check('delete').allowed()"},
		{name: holds, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute' || limits.breakerMin > 2"}]}`)
	const want = "guardrail/judges-changes-only: judges creations and updates only, for what it reads: rule by-operators for ConditionSet (request.userInfo.username), " +
		"rule small-steps for ConditionSet (facts.nodes, oldObject, plan.wouldTaint), rule entitled for ConditionSet (authorizer about who asks), rule by-operators for WeederConfig (request.userInfo.username). " +
		"A policy that is stored already, or while the webhook is away, acts whatever it says; for a rule that stops that, too, write it over object, limits or authorizer.serviceAccount(…); if changes are what is meant, ignore this (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#guardrail-judges-changes-only)"
	if got := warningOf(v, "guardrail/judges-changes-only"); !v.Allowed || got != want {
		t.Errorf("allowed %v: %s\n got %s\nwant %s", v.Allowed, v.Message(), got, want)
	}
}

// TestARuleThatJudgesChangesOnlyIsToldOfOnce: it may be meant so, and another rule isn't the occasion to say it again.
func TestARuleThatJudgesChangesOnlyIsToldOfOnce(t *testing.T) {
	const (
		op     = `{name: by-operators, kinds: [ConditionSet], expression: "request.userInfo.username == 'op'"}`
		others = `{name: by-others, kinds: [ConditionSet], expression: "request.userInfo.username != 'op'"}`
		now    = `{name: by-operators, kinds: [ConditionSet], expression: "request.userInfo.username == 'root'"}`
	)
	for name, c := range map[string]struct{ old, object, want string }{
		"it is new":       {"{rules: []}", "{rules: [" + op + "]}", "by-operators"},
		"a limit changes": {"{rules: [" + op + "]}", "{limits: {maxPodDeletionsPerMinute: 5}, rules: [" + op + "]}", ""},
		"another is new":  {"{rules: [" + op + "]}", "{rules: [" + op + ", " + others + "]}", "by-others"},
		"it changes":      {"{rules: [" + op + "]}", "{rules: [" + now + "]}", "by-operators"},
	} {
		v := reviewRail(t, t.Context(), newTestGuard(t, nil), c.old, c.object)
		_, told, _ := strings.Cut(warningOf(v, "guardrail/judges-changes-only"), ": rule ")
		if told, _, _ = strings.Cut(told, " for "); !v.Allowed || told != c.want {
			t.Errorf("%s: allowed %v, told of %q, want %q", name, v.Allowed, told, c.want)
		}
	}
}
