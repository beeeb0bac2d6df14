package guard

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// TestCatalogue runs the tests that the rules carry themselves.
func TestCatalogue(t *testing.T) {
	g := newTestGuard(t, nil)
	for _, kind := range g.Kinds() {
		for _, r := range g.rules.Load().kinds[kind].rules {
			if r.condition.quick != nil {
				r.condition.quick()
			}
		}
		for _, rule := range g.Rules(kind) {
			for _, test := range rule.Tests {
				t.Run(rule.ID+"/"+test.Name, func(t *testing.T) {
					quick := runCatalogueTest(t, kind, test)
					if got := outcome(quick, rule.ID); got != test.Expect {
						t.Errorf("got %s, want %s", got, test.Expect)
					}
					e, err := newTestGuard(t, nil).testEvaluation(t.Context(), kind, test)
					if err != nil {
						t.Fatal(err)
					}
					e.small = false
					if counted := e.atAdmission(); !reflect.DeepEqual(counted, quick) {
						t.Errorf("where costs are counted it is judged %+v, and where they aren't %+v", counted, quick)
					}
				})
			}
		}
	}
}

// TestMessagesCitePagesByURL: who reads a refusal seldom has the repository.
func TestMessagesCitePagesByURL(t *testing.T) {
	g := newTestGuard(t, nil)
	for _, kind := range g.Kinds() {
		for _, rule := range g.Rules(kind) {
			says := rule.MessageExpression + rule.Rationale + Docs(rule.ID)
			if urls := strings.Count(says, "https://github.com/resourcestack/autohealer/blob/main/docs/"); urls == 0 || urls != strings.Count(says, "docs/") {
				t.Errorf("%s cites a page by its path: %s", rule.ID, says)
			}
		}
	}
}

func runCatalogueTest(t testing.TB, kind string, test Test) Verdict {
	t.Helper()
	verdict, err := newTestGuard(t, nil).RunTest(t.Context(), kind, test)
	if err != nil {
		t.Fatal(err)
	}
	for _, skip := range verdict.Skipped {
		if skip.Severity == Deny {
			t.Errorf("could not be evaluated: %s", skip)
		}
	}
	return verdict
}

// outcome is what the verdict says by one rule.
func outcome(v Verdict, rule string) string {
	for _, violation := range v.Violations {
		if violation.Rule == rule && violation.Severity == Deny {
			return ExpectDeny
		}
		if violation.Rule == rule {
			return ExpectWarn
		}
	}
	return ExpectAdmit
}

func TestEveryRuleShowsBothVerdictsAndHasAReason(t *testing.T) {
	g := newTestGuard(t, nil)
	for _, kind := range g.Kinds() {
		for _, rule := range g.Rules(kind) {
			var outcomes []string
			for _, test := range rule.Tests {
				outcomes = append(outcomes, test.Expect)
			}
			violated := ExpectWarn
			if rule.Severity == Deny {
				violated = ExpectDeny
			}
			if !slices.Contains(outcomes, ExpectAdmit) || !slices.Contains(outcomes, violated) {
				t.Errorf("%s: tests expect %v, want %s and %s", rule.ID, outcomes, ExpectAdmit, violated)
			}
			if rule.MessageExpression == "" || rule.Rationale == "" {
				t.Errorf("%s has no message or no rationale", rule.ID)
			}
		}
	}
}

func TestTheRulesOfConditionSets(t *testing.T) {
	g := newTestGuard(t, nil)
	var got []string
	for _, rule := range g.Rules("ConditionSet") {
		reads := "object"
		if !rule.Portable {
			reads = "plan"
		}
		got = append(got, rule.ID+" "+string(rule.Severity)+" "+reads)
	}
	want := []string{
		"conditionset/matches-healthy-nodes Deny object",
		"conditionset/sounds-healthy Warn object",
		"conditionset/sounds-healthy-evicts Deny object",
		"conditionset/malformed-condition-type Deny object",
		"conditionset/obsolete-condition Deny object",
		"conditionset/obsolete-condition-true Warn object",
		"conditionset/unknown-only-evicts Deny object",
		"conditionset/node-ready-belongs-to-kcm Deny object",
		"conditionset/reserved-taint-key Deny object",
		"conditionset/shared-taint-key Warn object",
		"conditionset/evicts-without-hold Warn object",
		"conditionset/always-stale Deny object",
		"conditionset/stale-between-heartbeats Warn object",
		"conditionset/outlasts-evidence Warn object",
		"conditionset/sticky-evicts Warn object",
		"conditionset/impossible-status Warn object",
		"conditionset/empty-cap Deny object",
		"conditionset/empty-cap-wide Warn object",
		"conditionset/control-plane-evicts Warn object",
		"conditionset/unreadable-spec Deny plan",
		"conditionset/control-plane-evicts-last Deny plan",
		"conditionset/would-exceed-limit Deny plan",
		"conditionset/would-exceed-limit-observing Warn plan",
		"conditionset/union-exceeds-limit Deny plan",
		"conditionset/fleet-wide-stale Deny plan",
		"conditionset/unsupported-condition-type Warn plan",
		"conditionset/selects-no-node Warn plan",
		"conditionset/same-key-other-owner Warn plan",
		"conditionset/subset-of-other Warn plan",
		"conditionset/duplicate-set Warn plan",
		"conditionset/evicts-system-pods Warn plan",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRefusalsSayWhatIsWrongAndWhatToWrite(t *testing.T) {
	for name, c := range map[string]struct {
		spec     string
		forecast condition.Forecast
		want     string
	}{
		"OutOfDisk false with NoExecute breaks two rules": {
			spec: "{type: OutOfDisk, effect: NoExecute, taintKey: example.com/disk, conditions: {OutOfDisk: {status: false}}}",
			want: "conditionset/matches-healthy-nodes: every condition asks for its healthy status (OutOfDisk: false), so all healthy nodes would get the taint; write the status that reports the problem: OutOfDisk: {status: true} (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-matches-healthy-nodes)\n" +
				"conditionset/obsolete-condition: OutOfDisk: false asks for a condition that Kubernetes no longer reports; where anything still reports it, that is its status on healthy nodes. Remove it, or write DiskPressure: {status: true} (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-obsolete-condition)",
		},
		"a reserved key": {
			spec: "{type: KernelDeadlock, effect: NoSchedule, taintKey: node.kubernetes.io/kernel, conditions: {KernelDeadlock: {status: true}}}",
			want: "conditionset/reserved-taint-key: taintKey \"node.kubernetes.io/kernel\" belongs to Kubernetes, which acts on it; write a key with a domain of your own, such as example.com/KernelDeadlock (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-reserved-taint-key)",
		},
		"a key that would break the line is quoted": {
			spec: "{type: KernelDeadlock, effect: NoSchedule, taintKey: \"a\\nb\", conditions: {KernelDeadlock: {status: true}}}",
			want: "conditionset/reserved-taint-key: taintKey \"a\\nb\" is not a valid taint key; write a domain of your own, a slash and a name of at most 63 letters, digits, -, _ or ., such as example.com/KernelDeadlock (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-reserved-taint-key)",
		},
		"more nodes than the limit": {
			spec:     "{type: KernelDeadlock, effect: NoSchedule, taintKey: example.com/kernel, conditions: {KernelDeadlock: {status: true}}}",
			forecast: condition.Forecast{Nodes: 40, WouldTaint: 37, Limit: 4, LimitName: "maxTaintedNodes", UnionLimit: 40, MatchingNodes: []string{"n1", "n2", "n3", "n4", "n5", "n6"}},
			want:     "conditionset/would-exceed-limit: would now taint 37 of 40 nodes (n1, n2, n3, n4, n5, …), and maxTaintedNodes allows 4; narrow conditions or nodeSelector, write maxNodes: 4, or watch it first with mode: Observe (https://github.com/resourcestack/autohealer/blob/main/docs/reference/guardrails.md#conditionset-would-exceed-limit)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestGuard(t, &fakeFacts{forecast: c.forecast})
			v := g.Review(context.Background(), creating(t, conditionSet(t, c.spec)))
			if got := v.Message(); v.Allowed || got != c.want {
				t.Errorf("allowed %v\n got %s\nwant %s", v.Allowed, got, c.want)
			}
		})
	}
}

func TestTheDocumentedSamplesAreAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		spec     string
		warnings []string
	}{
		"kubelet and container runtime": {
			spec: "{type: KubeletContainerRuntimeUnhealthy, effect: NoExecute, taintKey: node.stakater.com/KubeletContainerRuntimeUnhealthy, conditions: {KubeletUnhealthy: {status: true}, ContainerRuntimeUnhealthy: {status: unknown}}}",
		},
		"kernel deadlock": {
			spec:     "{type: KernelDeadlock, effect: NoExecute, taintKey: node.stakater.com/KernelDeadlock, conditions: {KernelDeadlock: {status: true}}}",
			warnings: []string{"conditionset/sticky-evicts"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := &fakeFacts{forecast: condition.Forecast{Nodes: 40, Limit: 2, UnionLimit: 4}}
			v := newTestGuard(t, facts).Review(context.Background(), creating(t, conditionSet(t, c.spec)))
			var warned []string
			for _, violation := range v.Violations {
				warned = append(warned, violation.Rule)
			}
			if !v.Allowed || !slices.Equal(warned, c.warnings) || len(v.Skipped) > 0 {
				t.Errorf("allowed %v, warned %v, skipped %v; want admitted with %v", v.Allowed, warned, v.Skipped, c.warnings)
			}
		})
	}
}
