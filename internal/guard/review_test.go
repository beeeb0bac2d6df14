package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/domain/condition"
)

const goodSpec = "{type: KernelDeadlock, effect: NoSchedule, taintKey: example.com/kernel, conditions: {KernelDeadlock: {status: true}}}"

func create(t testing.TB, g *Guard, spec string) Verdict {
	t.Helper()
	return g.Review(context.Background(), creating(t, conditionSet(t, spec)))
}

func TestThePlannerIsAskedOnceARequestAndOnlyIfARuleWantsToKnow(t *testing.T) {
	facts := &fakeFacts{forecast: condition.Forecast{Limit: 4, UnionLimit: 4}}
	if v := create(t, newTestGuard(t, facts), goodSpec); !v.Allowed || facts.asked != 1 {
		t.Errorf("allowed %v, planner asked %d times, want once", v.Allowed, facts.asked)
	}
	g, err := NewFrom(Options{Facts: facts, Planners: facts.planners()}, catalogueOf("object.spec.effect == 'NoSchedule'", ""), crds.FS)
	if err != nil {
		t.Fatal(err)
	}
	facts.asked = 0
	if v := create(t, g, goodSpec); !v.Allowed || facts.asked != 0 {
		t.Errorf("allowed %v, planner asked %d times, want never", v.Allowed, facts.asked)
	}
}

func TestVariablesAreWorkedOutOnceAndOnlyWhenRead(t *testing.T) {
	g := newTestGuard(t, nil)
	kind := g.rules.Load().kinds["ConditionSet"]
	e := g.evaluation(context.Background(), g.rules.Load(), kind, judgedAs(t, conditionSet(t, goodSpec)))
	for _, r := range kind.rules {
		e.judge(r)
	}
	left := e.remaining
	status := e.variables[kind.index["variables.status"]]
	if status == nil {
		t.Fatal("variables.status was not worked out")
	}
	if members := e.variables[kind.index["variables.members"]]; members != nil {
		t.Error("variables.members, which only messages read, was worked out for an object that breaks no rule")
	}
	if _, found := e.ResolveName("variables.status"); !found || e.remaining != left {
		t.Error("reading a variable again cost something")
	}
}

func TestWithoutFactsTheRulesThatNeedThemAreSkippedVisibly(t *testing.T) {
	for name, facts := range map[string]Facts{"facts not synced": &fakeFacts{unsynced: true, panics: true}, "no facts at all": nil} {
		t.Run(name, func(t *testing.T) {
			v := create(t, newTestGuard(t, facts), goodSpec)
			var skipped []string
			for _, s := range v.Skipped {
				skipped = append(skipped, s.Rule)
			}
			if !v.Allowed || len(skipped) != 11 || !slices.Contains(skipped, "conditionset/would-exceed-limit") {
				t.Errorf("allowed %v, skipped %v; want admitted without the eleven rules over what is live", v.Allowed, skipped)
			}
			want := "not checked, because Autohealer hasn't read all of the cluster yet: conditionset/control-plane-evicts-last, " +
				"conditionset/would-exceed-limit, conditionset/would-exceed-limit-observing, conditionset/union-exceeds-limit, conditionset/fleet-wide-stale, " +
				"conditionset/unsupported-condition-type, conditionset/selects-no-node, conditionset/same-key-other-owner, conditionset/subset-of-other, conditionset/duplicate-set, conditionset/evicts-system-pods"
			if got := v.Warnings(); len(got) != 1 || got[0] != want {
				t.Errorf("warnings %q, want one line with all rules", got)
			}
		})
	}
}

func TestARuleMayInsistOnFacts(t *testing.T) {
	text := "kind: ConditionSet\nrecheck: 'false'\nrules:\n- {id: x, kinds: [ConditionSet], severity: Warn, onFactsUnavailable: Deny, expression: 'plan.limit > 0'}\n"
	g, err := NewFrom(Options{Facts: &fakeFacts{unsynced: true}}, fstest.MapFS{"c.yaml": {Data: []byte(text)}}, crds.FS)
	if err != nil {
		t.Fatal(err)
	}
	if v := create(t, g, goodSpec); v.Allowed || !slices.Equal(v.RuleIDs(), []string{"x"}) {
		t.Errorf("allowed %v by %v, want refused by x", v.Allowed, v.RuleIDs())
	}
}

func TestARuleThatFailsRefusesIfItIsADenyRule(t *testing.T) {
	for severity, allowed := range map[string]bool{"Deny": false, "Warn": true} {
		text := "kind: ConditionSet\nrecheck: 'false'\nrules:\n- {id: x, kinds: [ConditionSet], severity: " + severity + ", expression: \"object.spec.taintKey.split('/')[7] == 'a'\"}\n"
		g, err := NewFrom(Options{}, fstest.MapFS{"c.yaml": {Data: []byte(text)}}, crds.FS)
		if err != nil {
			t.Fatal(err)
		}
		v := create(t, g, goodSpec)
		if v.Allowed != allowed || len(v.Skipped) != 1 || !strings.Contains(v.Skipped[0].Reason, "index out of bounds: 7") {
			t.Errorf("%s: allowed %v, skipped %v", severity, v.Allowed, v.Skipped)
		}
	}
}

func TestAFailingMessageFallsBackToTheReason(t *testing.T) {
	for name, message := range map[string]string{
		"fails":            "'x' + object.spec.taintKey.split('/')[7]",
		"gives two lines":  "'x\\ny'",
		"gives nothing":    "' '",
		"gives a big text": "object.spec.taintKey.replace('/', '" + strings.Repeat("y", 6000) + "')",
	} {
		t.Run(name, func(t *testing.T) {
			g, err := NewFrom(Options{}, catalogueOf("object.spec.effect == 'x'", message), crds.FS)
			if err != nil {
				t.Fatal(err)
			}
			want := "conditionset/x: must hold: object.spec.effect == 'x' (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-x)"
			if got := create(t, g, goodSpec).Message(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestTheRulesOfARequestShareOneBudget(t *testing.T) {
	g := newTestGuard(t, nil)
	kind := g.rules.Load().kinds["ConditionSet"]
	whole := g.evaluation(context.Background(), g.rules.Load(), kind, judgedAs(t, conditionSet(t, goodSpec)))
	for _, r := range kind.rules {
		whole.judge(r)
	}
	cost := maxRequestCost - whole.remaining.units
	if cost < 100 || cost > 5000 {
		t.Errorf("all rules cost %d, want some hundreds", cost)
	}
	half := g.evaluation(context.Background(), g.rules.Load(), kind, judgedAs(t, conditionSet(t, goodSpec)))
	half.remaining.units = cost / 2
	v := half.atAdmission()
	if v.Allowed || !strings.Contains(v.Message(), "not checked: over budget: the rules cost more than one request may") {
		t.Errorf("allowed %v with half the budget: %s", v.Allowed, v.Message())
	}
}

// The schema bounds lists for what comes from an API server; others may reach the webhook, too.
func TestLoopsOverWhatNoSchemaBoundsEnd(t *testing.T) {
	g := newTestGuard(t, nil)
	loops := "true"
	for _, variable := range "abcd" {
		loops = fmt.Sprintf("object.spec.dependentResourceInfos.all(%c, %s)", variable, loops)
	}
	rules := g.rules.Load()
	for _, infos := range []int{maxSmallList, maxSmallList + 1, 500} {
		t.Run(strconv.Itoa(infos), func(t *testing.T) {
			object := `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ProbeConfig","metadata":{"name":"x","namespace":"y"},"spec":{"dependentResourceInfos":[` +
				strings.TrimSuffix(strings.Repeat("{},", infos), ",") + "]}}"
			e, err := g.admission(t.Context(), rules, rules.kinds["ProbeConfig"], Request{Operation: admissionv1.Create, Kind: "ProbeConfig", Object: []byte(object)})
			if err != nil {
				t.Fatal(err)
			}
			p, _, err := rules.kinds["ProbeConfig"].env.check(loops, cel.BoolType)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.holds(p); infos > maxSmallList && !errors.Is(e.inability(err), errBudget) {
				t.Errorf("%v, want that it is over budget", err)
			}
		})
	}
}

func TestOutOfTimeNothingIsAdmitted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	v := newTestGuard(t, nil).Review(ctx, creating(t, conditionSet(t, goodSpec)))
	if !v.Undecided() || !strings.HasPrefix(v.Message(), "not checked: out of time, try again: context canceled (conditionset/matches-healthy-nodes, conditionset/sounds-healthy, ") || strings.Contains(v.Message(), "\n") {
		t.Errorf("allowed %v: %s", v.Allowed, v.Message())
	}
}

// slowAnswer lets time run out while it is asked, as an authorizer does that doesn't answer.
type slowAnswer struct{ end context.CancelFunc }

func (s slowAnswer) Authorize(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
	s.end()
	return authorizer.DecisionNoOpinion, "", ctx.Err()
}

// A violation that is only a lack of time would be told with the rule's reason, and its author would look for a mistake.
func TestARuleThatRunsOutOfTimeSaysSo(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := under(t, compiled, Options{Authorizer: slowAnswer{cancel}})
	g.SetGuardrails([]*v1alpha1.Guardrail{gr(t, "own", `{rules: [{name: rights, kinds: [ConditionSet], rationale: It may not.,
		expression: "object.spec.type != 'KernelDeadlock' || authorizer.serviceAccount('a', 'b').group('').resource('nodes').check('patch').allowed()"}]}`)})
	validated, v := Admit(ctx, g, stored(t, goodSpec))
	if v.Allowed || validated.Valid() || v.Message() != "own/rights: not checked: out of time, try again: context canceled" {
		t.Errorf("allowed %v, valid %v: %s", v.Allowed, validated.Valid(), v.Message())
	}
}

func TestARuleWhoseMessageIsOverBudgetSaysSo(t *testing.T) {
	g := newTestGuard(t, nil)
	kind := g.rules.Load().kinds["ConditionSet"]
	e := g.evaluation(t.Context(), g.rules.Load(), kind, judgedAs(t, conditionSet(t, healthySpec)))
	rule := kind.rules[0]
	if _, err := e.holds(rule.condition); err != nil {
		t.Fatal(err)
	}
	e.remaining.units = 1
	if got := e.message(rule); !strings.HasSuffix(got, " (details are missing: over budget: the rules cost more than one request may)") {
		t.Errorf("it says %s", got)
	}
}

func TestAKindWithoutRulesIsRefused(t *testing.T) {
	v := newTestGuard(t, nil).Review(context.Background(), creating(t, map[string]any{"kind": "Pod"}))
	if v.Allowed || v.Message() != `guard/kind: not checked: there are no rules for kind "Pod"` {
		t.Errorf("allowed %v: %s", v.Allowed, v.Message())
	}
}

func TestADeletionIsNeverInTheWay(t *testing.T) {
	v := newTestGuard(t, nil).Review(context.Background(), Request{Operation: admissionv1.Delete})
	if !v.Allowed {
		t.Error("refused")
	}
}

func TestAVerdictThatNobodyGaveAdmitsNothing(t *testing.T) {
	if (Verdict{}).Allowed {
		t.Error("the zero verdict admits")
	}
}

func TestALongReasonIsCutToWhatTheCostEstimateAllows(t *testing.T) {
	v := create(t, newTestGuard(t, nil), strings.Replace(goodSpec, "{", "{nodeSelector: {matchLabels: {zone: \""+strings.Repeat("é", 5000)+"\"}}, ", 1))
	if !slices.Equal(v.RuleIDs(), []string{"conditionset/unreadable-spec"}) {
		t.Fatalf("refused by %v", v.RuleIDs())
	}
	message := v.Message()
	if !strings.Contains(message, "spec.nodeSelector: ") || !strings.Contains(message, "é …; nothing can be done") || len(message) > 660 || !utf8.ValidString(message) {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}
