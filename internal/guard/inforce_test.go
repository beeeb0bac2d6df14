package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestTheHashOfAKindFollowsOnlyWhatJudgesIt(t *testing.T) {
	g := newTestGuard(t, nil)
	hashes := func() [3]string {
		return [3]string{g.RuleSetHash("ConditionSet"), g.RuleSetHash("Guardrail"), g.RuleSetHash("GuardrailException")}
	}
	before := hashes()
	for name, c := range map[string]struct {
		spec    string
		changes [3]bool
	}{
		"nothing":                                {"{}", [3]bool{}},
		"a rule":                                 {noEviction, [3]bool{true, false, false}},
		"a rule for exceptions":                  {`{rules: [{name: r, kinds: [GuardrailException], expression: "size(object.spec.reason) > 20"}]}`, [3]bool{false, false, true}},
		"a declared condition type":              {"{conditionTypes: [{type: GPUHealthy, healthyStatus: \"True\"}]}", [3]bool{true, false, false}},
		"a limit that no rule reads at run time": {"{limits: {maxTaintedNodes: 3}}", [3]bool{}},
		"a pause":                                {"{paused: true}", [3]bool{}},
		"a rule over the limits":                 {`{rules: [{name: r, kinds: [ConditionSet], expression: "limits.maxTaintedNodes.nodes > 2 || object.spec.effect != 'NoExecute'"}], limits: {maxTaintedNodes: 3}}`, [3]bool{true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", c.spec)})
			now := hashes()
			for i, kind := range []string{"ConditionSet", "Guardrail", "GuardrailException"} {
				if changed := now[i] != before[i]; changed != c.changes[i] || len(now[i]) != 16 {
					t.Errorf("%s: %s after %s", kind, now[i], before[i])
				}
			}
			g.SetGuardrails(nil)
			if hashes() != before {
				t.Error("without the Guardrail the hashes aren't what they were")
			}
		})
	}
}

func TestALimitThatARuleReadsChangesItsHash(t *testing.T) {
	g := newTestGuard(t, nil)
	const rule = `rules: [{name: r, kinds: [ConditionSet], expression: "limits.maxTaintedNodes.nodes > 2 || object.spec.effect != 'NoExecute'"}]`
	var verdicts []bool
	var hashes []string
	for _, limits := range []string{"2", "3", "3"} {
		g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", "{limits: {maxTaintedNodes: "+limits+"}, "+rule+"}")})
		_, v := Admit(t.Context(), g, stored(t, evictingSpec))
		verdicts, hashes = append(verdicts, v.Allowed), append(hashes, v.RuleSetHash)
	}
	if !slices.Equal(verdicts, []bool{false, true, true}) || hashes[0] == hashes[1] || hashes[1] != hashes[2] {
		t.Errorf("verdicts %v, hashes %v", verdicts, hashes)
	}
}

func TestRulesAreNotCompiledAgainWithoutNeed(t *testing.T) {
	g := newTestGuard(t, nil)
	own := func() *compiledRule { return g.rules.Load().kinds["ConditionSet"].own[0] }
	builtin := g.rules.Load().kinds["ConditionSet"].rules[0]
	tested := strings.Replace(noEviction, "kinds:", "tests: [{name: t, object: {}, plan: {wouldTaint: 1}, accountsMay: true, expect: admitted}], kinds:", 1)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", tested)})
	first := own()
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", strings.Replace(tested, "{rules", "{paused: true, rules", 1))})
	if own() != first || g.rules.Load().kinds["ConditionSet"].rules[0] != builtin {
		t.Error("compiled again")
	}
}

func TestWhatMustBeJudgedAgainIsToldAfterItIsInForce(t *testing.T) {
	g := newTestGuard(t, nil)
	var told []string
	g.OnChange(func(c Change) {
		told = append(told, fmt.Sprintf("%v %v %v paused=%v", c.Kinds, c.Targets, c.Policy, g.Policy().PausedBy))
		g.OnChange(func(Change) {}) // no lock is held
	})
	g.SetGuardrails(nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", noEviction)})
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", strings.Replace(noEviction, "{rules", "{paused: true, rules", 1))})
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", "{paused: true}")})
	want := []string{"[ConditionSet] [] false paused=[]", "[] [] true paused=[platform]", "[ConditionSet] [] false paused=[platform]"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestUntilGuardrailsAreReadNothingIsAdmitted(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	g := under(t, compiled, Options{AwaitGuardrails: true})
	if !g.Policy().Paused() {
		t.Error("not paused")
	}
	const want = "guard/guardrails: not checked: the Guardrails aren't read yet; try again in a moment"
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); v.Allowed || v.Message() != want {
		t.Errorf("at run time: allowed %v, %s", v.Allowed, v.Message())
	}
	if v := create(t, g, goodSpec); !v.Undecided() || v.Message() != want {
		t.Errorf("at admission: undecided %v, %s", v.Undecided(), v.Message())
	}
	pause := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: platform}, spec: {paused: true}}")
	if v := g.Review(context.Background(), creating(t, pause)); !v.Allowed {
		t.Errorf("a Guardrail that pauses: %s", v.Message())
	}
	told := 0
	g.OnChange(func(c Change) {
		if told++; !slices.Contains(c.Kinds, "ConditionSet") || !c.Policy {
			t.Errorf("told %+v", c)
		}
	})
	g.SetGuardrails(nil)
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); !v.Allowed || g.Policy().Paused() || told != 1 {
		t.Errorf("allowed %v, paused by %v, told %d times", v.Allowed, g.Policy().PausedBy, told)
	}
}

// TestUndoWaitsUntilItIsKnownWhoFreezes: a manager that starts while everything is frozen must not undo, and one that starts
// without the CRD must.
func TestUndoWaitsUntilItIsKnownWhoFreezes(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	started := func() *Guard { return under(t, compiled, Options{AwaitGuardrails: true}) }
	g, told := started(), 0
	g.OnChange(func(Change) { told++ })
	if !g.Policy().Frozen() {
		t.Error("before anything is known it isn't frozen")
	}
	g.GuardrailsListed()
	if p := g.Policy(); p.Frozen() || !p.Paused() || told != 1 {
		t.Errorf("none freezes: frozen by %v, paused by %v, told %d times", p.FrozenBy, p.PausedBy, told)
	}
	g = started()
	g.Tighten([]*v1alpha1.Guardrail{gr(t, "stop", "{frozen: true}")})
	g.GuardrailsListed()
	if p := g.Policy(); !slices.Equal(p.FrozenBy, []string{"stop"}) {
		t.Errorf("one freezes: frozen by %v", p.FrozenBy)
	}
	g.SetGuardrails(nil)
	g.Tighten(nil)
	g.GuardrailsListed()
	if p := g.Policy(); p.Frozen() || p.Paused() {
		t.Errorf("thawed: frozen by %v, paused by %v", p.FrozenBy, p.PausedBy)
	}
}

func TestADeclaredConditionTypeIsHealthyAtOnce(t *testing.T) {
	const gpu = "{type: GPU, effect: NoSchedule, taintKey: example.com/gpu, conditions: {GPUHealthy: {status: true}}}"
	g := newTestGuard(t, nil)
	declares := func(name, status string) *v1alpha1.Guardrail {
		return gr(t, name, `{conditionTypes: [{type: GPUHealthy, healthyStatus: "`+status+`"}]}`)
	}
	for name, c := range map[string]struct {
		rails   []*v1alpha1.Guardrail
		allowed bool
	}{
		"nobody declares it":         {nil, true},
		"healthy at True":            {[]*v1alpha1.Guardrail{declares("a", "True")}, false},
		"healthy at False":           {[]*v1alpha1.Guardrail{declares("a", "False")}, true},
		"two agree":                  {[]*v1alpha1.Guardrail{declares("a", "True"), declares("b", "True")}, false},
		"two disagree, so either is": {[]*v1alpha1.Guardrail{declares("a", "True"), declares("b", "False")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g.SetGuardrails(c.rails)
			if _, v := Admit(t.Context(), g, stored(t, gpu)); v.Allowed != c.allowed {
				t.Errorf("allowed %v: %s", v.Allowed, v.Message())
			}
		})
	}
	for _, rule := range g.Rules("ConditionSet") {
		for _, v := range rule.Variables {
			if v.Name == "healthy" && strings.Contains(v.Expression, "GPUHealthy") {
				t.Error("the literal for the generated policy has a declared type: policies are generated for all clusters")
			}
		}
	}
}

func TestOfADisputedTypeBothStatusesAreHealthy(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{
		gr(t, "a", `{conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]}`), gr(t, "b", `{conditionTypes: [{type: GPUHealthy, healthyStatus: "False"}]}`),
	})
	for conditions, want := range map[string]string{
		"{GPUHealthy: {status: true}}":                                 "conditionset/matches-healthy-nodes: every condition asks for its healthy status (GPUHealthy: true), so all healthy nodes would get the taint; Guardrails disagree on which status of GPUHealthy is healthy, so both count as healthy: have them agree on one (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-matches-healthy-nodes)",
		"{GPUHealthy: {status: false}, Ready: {status: true}}":         "conditionset/matches-healthy-nodes: every condition asks for its healthy status (GPUHealthy: false, Ready: true), so all healthy nodes would get the taint; Guardrails disagree on which status of GPUHealthy is healthy, so both count as healthy: have them agree on one (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-matches-healthy-nodes)",
		"{GPUHealthy: {status: unknown}}":                              "",
		"{GPUHealthy: {status: true}, KernelDeadlock: {status: true}}": "",
	} {
		_, v := Admit(t.Context(), g, stored(t, "{type: GPU, effect: NoSchedule, taintKey: example.com/gpu, conditions: "+conditions+"}"))
		if v.Message() != want {
			t.Errorf("%s\n got %s\nwant %s", conditions, v.Message(), want)
		}
	}
}

// TestARefusedGuardrailStillSaysWhatIsHealthy: whoever refuses a Guardrail, or breaks one of its rules, must not let act what
// it kept from acting.
func TestARefusedGuardrailStillSaysWhatIsHealthy(t *testing.T) {
	const (
		gpu     = "{type: GPU, effect: NoSchedule, taintKey: example.com/gpu, conditions: {GPUHealthy: {status: true}}}"
		types   = `conditionTypes: [{type: GPUHealthy, healthyStatus: "True"}]`
		labels  = `{rules: [{name: owned, kinds: [Guardrail], expression: "object.metadata.name == 'org'"}]}`
		another = `{conditionTypes: [{type: GPUHealthy, healthyStatus: "False"}]}`
	)
	for name, rails := range map[string][]*v1alpha1.Guardrail{
		"by a rule over Guardrails":                    {gr(t, "org", labels), gr(t, "platform", "{"+types+"}")},
		"for a rule that doesn't compile":              {gr(t, "platform", "{"+types+`, rules: [{name: typo, kinds: [ProbeConfig], expression: "object.spec.efect"}]}`)},
		"while another says the opposite":              {gr(t, "org", labels), gr(t, "platform", "{"+types+"}"), gr(t, "gpu-team", another)},
		"while one that is accepted says the opposite": {gr(t, "org", strings.Replace(labels, "{rules", `{conditionTypes: [{type: GPUHealthy, healthyStatus: "False"}], rules`, 1)), gr(t, "platform", "{"+types+"}")},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestGuard(t, nil)
			results := g.SetGuardrails(rails)
			if refused := slices.IndexFunc(results, func(r GuardrailResult) bool { return r.Name == "platform" }); results[refused].Verdict.Allowed {
				t.Fatal("platform isn't refused")
			}
			if _, v := Admit(t.Context(), g, stored(t, gpu)); v.Allowed || !slices.Equal(v.RuleIDs(), []string{"conditionset/matches-healthy-nodes"}) {
				t.Errorf("allowed %v: %s", v.Allowed, v.Message())
			}
		})
	}
}

func TestAGuardrailThatIsRefusedOnlyMakesThingsStricter(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", `{paused: true, limits: {maxTaintedNodes: 90%, maxEvictingNodes: 1}, conditionTypes: [{type: Ready, healthyStatus: "False"}],
		rules: [{name: no-eviction, kinds: [ConditionSet], expression: "object.spec.effect != 'NoExecute'"}]}`)})
	p := g.Policy()
	if p.Limits.MaxTaintedNodes.String() != "10%" || p.Limits.MaxEvictingNodes.String() != "5% and 1" || !p.Paused() {
		t.Errorf("limits %s and %s, paused %v", p.Limits.MaxTaintedNodes, p.Limits.MaxEvictingNodes, p.Paused())
	}
	if _, v := Admit(t.Context(), g, stored(t, evictingSpec)); v.Allowed {
		t.Error("its rule doesn't hold")
	}
}

func TestAtRunTimeAnObjectSaysWhatKindItIs(t *testing.T) {
	g := newTestGuard(t, nil)
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "platform", `{rules: [{name: kind, kinds: [ConditionSet], expression: "object.kind == 'ConditionSet' && object.apiVersion.startsWith('autohealer.')"}]}`)})
	if _, v := Admit(t.Context(), g, stored(t, goodSpec)); !v.Allowed {
		t.Error(v.Message())
	}
}
