package guard

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/resourcestack/autohealer/crds"
)

// catalogueOf is a catalogue of one rule.
func catalogueOf(expression, message string) fstest.MapFS {
	text := "kind: ConditionSet\nrecheck: \"false\"\nrules:\n- id: conditionset/x\n  kinds: [ConditionSet]\n  severity: Deny\n  expression: |-\n    " + expression + "\n"
	if message != "" {
		text += "  messageExpression: |-\n    " + message + "\n"
	}
	return fstest.MapFS{"conditionset.yaml": {Data: []byte(text)}}
}

func TestARuleThatCannotHoldWhatItSaysIsRefused(t *testing.T) {
	loops := "object.spec.conditions.all(a, object.spec.conditions.all(b, object.spec.conditions.all(c, object.spec.conditions.all(d, a == b || c == d))))"
	for name, c := range map[string]struct {
		expression, message string
		want                []string
	}{
		"a misspelt field":             {expression: "object.spec.efect == 'NoExecute'", want: []string{"conditionset/x", "expression", "1:12", "undefined field 'efect'"}},
		"an unknown variable":          {expression: "variables.stat == 1", want: []string{"1:1", "undeclared reference to 'variables'; a rule may read authorizer, facts, limits, object, oldObject, plan, request"}},
		"a misspelt field of the plan": {expression: "plan.wouldTain > 3", want: []string{"1:5", "undefined field 'wouldTain'"}},
		"a string":                     {expression: "object.spec.effect", want: []string{"returns string, want bool"}},
		"a dyn":                        {expression: "dyn(object.spec).effect", want: []string{"returns dyn, want bool"}},
		"an escaped keyword":           {expression: "has(object.spec.__for__)", want: []string{"write for instead of __for__"}},
		"a syntax error":               {expression: "object.spec.effect == ", want: []string{"1:23", "Syntax error: it ends too early\n"}},
		"a constant":                   {expression: "1 < 2", want: []string{"is constant"}},
		"a constant in disguise":       {expression: "object.spec.effect == 'NoExecute' || true", want: []string{"is constant"}},
		"a number where text belongs":  {expression: "object.spec.effect > 3", want: []string{"1:20", "> can't be applied to (string, int); convert one of them"}},
		"too many loops":               {expression: loops, want: []string{"may cost", "at most 100000"}},
		"a message that is no text":    {expression: "object.spec.effect == 'x'", message: "object.spec.conditions", want: []string{"messageExpression", "want string"}},
		"a message with a typo":        {expression: "object.spec.effect == 'x'", message: "object.spec.efect", want: []string{"messageExpression", "undefined field 'efect'"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFrom(Options{}, catalogueOf(c.expression, c.message), crds.FS)
			if err == nil {
				t.Fatal("compiled")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestAVariableReadsOnlyThoseBeforeIt(t *testing.T) {
	const text = "kind: ConditionSet\nrecheck: \"false\"\nvariables:\n- {name: a, type: bool, expression: variables.%s}\n- {name: b, type: bool, expression: object.spec.effect == 'x'}\n"
	for _, name := range []string{"a", "b"} {
		_, err := NewFrom(Options{}, fstest.MapFS{"conditionset.yaml": {Data: fmt.Appendf(nil, text, name)}}, crds.FS)
		if want := "variable a: reads variables." + name + ", which isn't declared before it"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestARuleMayReadKeywordsAndMetadata(t *testing.T) {
	for _, expression := range []string{
		"!has(object.spec.for) || duration(object.spec.for) > duration('1s')",
		"object.spec.?for.orValue('0s') != '7s'",
		"!('a' in object.metadata.labels) && object.metadata.name != 'x'",
		"request.userInfo.username != 'x' && (oldObject == null || oldObject.spec.effect == 'x')",
		"facts.synced && facts.ageSeconds < 60",
	} {
		if _, err := NewFrom(Options{}, catalogueOf(expression, ""), crds.FS); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

func TestAMalformedCatalogueIsRefused(t *testing.T) {
	rule := "- {id: conditionset/x, kinds: [ConditionSet], severity: Deny, expression: \"object.spec.effect == 'x'\"}\n"
	for name, c := range map[string]struct{ text, want string }{
		"an unknown field":       {"kind: ConditionSet\nrules:\n- {id: x, severty: Deny}", "unknown field"},
		"a duplicate field":      {"kind: ConditionSet\nkind: ConditionSet\nrules: []", "already set"},
		"an unknown severity":    {"kind: ConditionSet\nrules:\n- {id: x, kinds: [ConditionSet], severity: Maybe, expression: 'true'}", "neither Deny nor Warn"},
		"no expression":          {"kind: ConditionSet\nrules:\n- {id: x, kinds: [ConditionSet], severity: Deny}", "required"},
		"an id with spaces":      {"kind: ConditionSet\nrules:\n- {id: 'x y', kinds: [ConditionSet], severity: Deny, expression: 'true'}", "lower-case"},
		"a rule twice":           {"kind: ConditionSet\nrecheck: 'false'\nrules:\n" + rule + rule, "there twice"},
		"a kind without a CRD":   {"kind: Unicorn\nrules: []", "no CRD has kind"},
		"a rule of another kind": {"kind: ConditionSet\nrules:\n- {id: x, kinds: [Pod], severity: Deny, expression: 'true'}", "lack the catalogue's"},
		"an exceptable rule that ratchets": {
			"kind: ConditionSet\nrules:\n- {id: x, kinds: [ConditionSet], severity: Deny, expression: plan.wouldTaint == 0, exceptable: true, ratchetOn: [spec.conditions]}", "exclude each other",
		},
		"a rule over limits that ratchets": {
			"kind: ConditionSet\nrecheck: 'false'\nrules:\n- {id: x, kinds: [ConditionSet], severity: Deny, expression: plan.wouldTaint < limits.maxPodDeletionsPerMinute, ratchetOn: [spec.conditions]}", "ratchetOn",
		},
		"a rule over facts that ratchets": {
			"kind: ConditionSet\nrecheck: 'false'\nrules:\n- {id: x, kinds: [ConditionSet], severity: Deny, expression: plan.wouldTaint < facts.nodes, ratchetOn: [spec.conditions]}", "ratchetOn",
		},
		"a rule over the object that ratchets on more": {
			"kind: ConditionSet\nrecheck: 'false'\nrules:\n- {id: x, kinds: [ConditionSet], severity: Deny, expression: object.spec.effect == 'x', ratchetOn: [spec.conditions]}", "ratchetOn",
		},
		"a variable over the plan": {"kind: ConditionSet\nvariables: [{name: v, type: int, expression: plan.limit}]\nrules: []", "a shared variable reads only object and oldObject"},
		"a variable of a wrong type": {
			"kind: ConditionSet\nvariables: [{name: v, type: int, expression: object.spec.effect}]\nrules: []", "variable v: 1:1: returns string, want int",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFrom(Options{}, fstest.MapFS{"c.yaml": {Data: []byte(c.text)}}, crds.FS)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestReadsAreFollowedThroughVariablesIndexesAndLoops(t *testing.T) {
	for expression, want := range map[string]string{
		"object.spec.effect == 'x'":                                        "object.spec.effect",
		"object.spec.?mode.orValue('x') == 'y'":                            "object.spec.mode",
		"has(object.spec.for)":                                             "object.spec.for",
		"object == oldObject":                                              "object oldObject",
		"object.spec.conditions.all(k, k != object.spec.type)":             "object.spec.conditions object.spec.type",
		"object.spec.conditions[object.spec.type] != null":                 "object.spec.conditions object.spec.type",
		"object.metadata.labels['a'] == 'b' && size(plan.silentTypes) > 0": "object.metadata.labels.a plan.silentTypes",
	} {
		g, err := NewFrom(Options{}, catalogueOf(expression, ""), crds.FS)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got := strings.Join(g.Rules("ConditionSet")[0].Reads, " "); got != want {
			t.Errorf("%s reads %q, want %q", expression, got, want)
		}
	}
}

func TestTheHashFollowsWhatDecidesVerdicts(t *testing.T) {
	hash := func(expression string) string {
		g, err := NewFrom(Options{}, catalogueOf(expression, ""), crds.FS)
		if err != nil {
			t.Fatal(err)
		}
		return g.RuleSetHash("ConditionSet")
	}
	a, again, b := hash("object.spec.effect == 'x'"), hash("object.spec.effect == 'x'"), hash("object.spec.effect == 'y'")
	if a != again || a == b || len(a) != 16 {
		t.Errorf("hashes %q, %q and %q: want the first two equal, the third another, 16 digits", a, again, b)
	}
}
