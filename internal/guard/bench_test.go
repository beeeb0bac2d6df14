package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

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
	facts := &fakeFacts{preview: condition.Preview{Nodes: 5000, Limit: 500, UnionLimit: 500, MatchingNodes: []string{"n1", "n2"}}}
	g, err := newGuard(Options{Facts: facts, Planners: facts.planners()}, fstest.MapFS{"c.yaml": {Data: []byte(b.String())}}, crds.FS)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const benchSpec = "{type: KubeletContainerRuntimeUnhealthy, effect: NoExecute, taintKey: node.stakater.com/KubeletContainerRuntimeUnhealthy, conditions: {KubeletUnhealthy: {status: true}, ContainerRuntimeUnhealthy: {status: unknown}}}"

func BenchmarkReview(b *testing.B) {
	for _, n := range []int{1, 10, 25} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			g := guardOf(b, n)
			req := Request{Operation: admissionv1.Create, Object: conditionSet(b, benchSpec)}
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
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rule")
		})
	}
}

// TestAllocationsStayWhereTheyAre fails when a review begins to allocate a tenth more than it did when this was recorded.
func TestAllocationsStayWhereTheyAre(t *testing.T) {
	g := guardOf(t, 25)
	req := Request{Operation: admissionv1.Create, Object: conditionSet(t, benchSpec)}
	got := testing.AllocsPerRun(200, func() { g.Review(context.Background(), req) })
	if got > 770 {
		t.Errorf("a review by 25 rules allocates %.0f times", got)
	}
}
