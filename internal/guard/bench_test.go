package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
)

// guardOf has n rules: the catalogue's own, in turn, under new ids.
func guardOf(t testing.TB, n int) *Guard {
	t.Helper()
	built, err := parseCatalogue(catalog.FS, "conditionset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := catalog.FS.ReadFile("conditionset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\nrules:")
	var b strings.Builder
	b.WriteString(head + "\nrules:\n")
	for i := range n {
		r := built.Rules[i%len(built.Rules)]
		fmt.Fprintf(&b, "- {id: conditionset/rule-%d, kinds: [ConditionSet], severity: %s, expression: %q}\n", i, r.Severity, r.Expression)
	}
	facts := &fakeFacts{forecast: condition.Forecast{Nodes: 5000, Limit: 500, UnionLimit: 500, MatchingNodes: []string{"n1", "n2"}}}
	g, err := NewFrom(Options{Facts: facts, Planners: facts.planners()}, fstest.MapFS{"c.yaml": {Data: []byte(b.String())}}, crds.FS)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const benchSpec = "{type: KubeletContainerRuntimeUnhealthy, effect: NoExecute, taintKey: node.stakater.com/KubeletContainerRuntimeUnhealthy, conditions: {KubeletUnhealthy: {status: true}, ContainerRuntimeUnhealthy: {status: unknown}}}"

func BenchmarkReview(b *testing.B) {
	for _, n := range []int{1, 10, 25, 100} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) { benchReview(b, guardOf(b, n), n) })
	}
	// As it is in a cluster: the built-in rules and 25 of an organisation's own.
	b.Run("builtin+own=25", func(b *testing.B) {
		facts := &fakeFacts{forecast: condition.Forecast{Nodes: 5000, Limit: 500, UnionLimit: 500}}
		g := newTestGuard(b, facts)
		g.SetGuardrails([]*v1alpha1.Guardrail{ownRulesOf(b, 25)})
		benchReview(b, g, len(g.Rules("ConditionSet")))
	})
}

func benchReview(b *testing.B, g *Guard, rules int) {
	req := creating(b, conditionSet(b, benchSpec))
	var times []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		started := time.Now()
		if v := g.Review(context.Background(), req); !v.Allowed {
			b.Fatal(v.Message())
		}
		times = append(times, time.Since(started))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/float64(rules), "p50-ns/rule")
}

// ownRulesOf is a Guardrail with n different rules such as organisations write.
func ownRulesOf(t testing.TB, n int) *v1alpha1.Guardrail {
	t.Helper()
	g := gr(t, "platform", "{}")
	for i := range n {
		g.Spec.Rules = append(g.Spec.Rules, v1alpha1.GuardrailRule{
			Name: fmt.Sprintf("r%d", i), Kinds: []string{"ConditionSet"},
			Expression:        fmt.Sprintf("!variables.evicts || object.spec.taintKey.startsWith('node.stakater.com/') || object.metadata.name == 'x%d'", i),
			MessageExpression: "'write a key of ours, not ' + object.spec.taintKey",
		})
	}
	return g
}

// BenchmarkSetGuardrails is a change of one rule among 25, which compiles that one, and a start, which compiles all.
func BenchmarkSetGuardrails(b *testing.B) {
	for _, one := range []bool{true, false} {
		b.Run(map[bool]string{true: "one-of-25-changed", false: "all-25-new"}[one], func(b *testing.B) {
			g, own := newTestGuard(b, nil), ownRulesOf(b, 25)
			g.SetGuardrails([]*v1alpha1.Guardrail{own})
			i := 0
			for b.Loop() {
				i++
				for r := range own.Spec.Rules {
					if !one || r == 7 {
						own.Spec.Rules[r].Expression = fmt.Sprintf("object.spec.taintKey != 'example.com/%d'", 100*i+r)
					}
				}
				if results := g.SetGuardrails([]*v1alpha1.Guardrail{own}); len(results[0].Errors) > 0 {
					b.Fatal(results[0].Errors)
				}
			}
		})
	}
}

// TestAllocationsStayWhereTheyAre fails when a review begins to allocate a tenth more than it did when this was recorded.
func TestAllocationsStayWhereTheyAre(t *testing.T) {
	req := creating(t, conditionSet(t, benchSpec))
	for rules, recorded := range map[int]float64{10: 187, 25: 201, 100: 268} {
		g := guardOf(t, rules)
		if got := testing.AllocsPerRun(200, func() { g.Review(context.Background(), req) }); got > 1.1*recorded {
			t.Errorf("a review by %d rules allocates %.0f times, and %.0f when it was recorded", rules, got, recorded)
		}
	}
}
