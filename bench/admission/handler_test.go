package admission

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/guard/catalog"
	"github.com/resourcestack/autohealer/webhooks"
)

func post(tb testing.TB, hook http.Handler, body []byte) {
	request := httptest.NewRequest(http.MethodPost, "/validate?timeout=5s", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	hook.ServeHTTP(answer, request)
	if !bytes.Contains(answer.Body.Bytes(), []byte(`"allowed":true`)) {
		tb.Fatalf("answered %s", answer.Body)
	}
}

// BenchmarkHandler is the webhook without network and TLS.
func BenchmarkHandler(b *testing.B) {
	logf.SetLogger(logr.Discard())
	body, err := review()
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, hook http.Handler, body []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				post(b, hook, body)
			}
		})
	}
	run("no-op", noop(), body)
	for _, c := range clustersOfSets {
		rules, err := c.guardOfSets(catalog.FS)
		if err != nil {
			b.Fatal(err)
		}
		run(fmt.Sprintf("nodes=%d,sets=%d", c.nodes, c.sets), webhooks.New(rules), body)
	}
	for _, c := range clustersOfTargets {
		h, err := c.hookOfTargets(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		run(fmt.Sprintf("targets=%d,pods=%d,services=%d", c.targets, c.pods, c.services), h, h.review)
	}
	for _, c := range clustersOfPods {
		h, err := c.hookOfPods()
		if err != nil {
			b.Fatal(err)
		}
		run(fmt.Sprintf("pods=%d,services=%d", c.pods, c.services), h, h.review)
	}
}

// mostAllocations of a review of a ConditionSet, with reading it and answering; 87 of these are controller-runtime's and the test's.
const mostAllocations = 430

// TestAllocationsDontGrowWithTheCluster fails when a review begins to allocate for each node or stored set.
func TestAllocationsDontGrowWithTheCluster(t *testing.T) {
	logf.SetLogger(logr.Discard())
	body, err := review()
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(nodes, sets int) float64 {
		rules, err := inMemory{nodes: nodes, sets: sets}.guardOfSets(catalog.FS)
		if err != nil {
			t.Fatal(err)
		}
		hook := webhooks.New(rules)
		return testing.AllocsPerRun(100, func() { post(t, hook, body) })
	}
	small := allocations(10, 10)
	if t.Logf("a review allocates %.0f times", small); small > mostAllocations {
		t.Errorf("a review allocates %.0f times, at most %d are meant to be", small, mostAllocations)
	}
	for _, c := range []struct {
		name        string
		nodes, sets int
	}{
		{"five hundred times as many nodes", 5000, 10},
		{"a hundred times as many sets", 10, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := allocations(c.nodes, c.sets); got > small+100 {
				t.Errorf("a review allocates %.0f times, %.0f with 10 nodes and 10 sets", got, small)
			}
		})
	}
}

// TestAllocationsDontGrowWithOthersPods is the same for a WeederConfig and a ProbeConfig that select and name as much.
func TestAllocationsDontGrowWithOthersPods(t *testing.T) {
	logf.SetLogger(logr.Discard())
	for kind, hook := range map[string]func(i int) (hook, error){
		"WeederConfig": func(i int) (hook, error) { return clustersOfPods[i].hookOfPods() },
		"ProbeConfig":  func(i int) (hook, error) { return clustersOfTargets[i].hookOfTargets(t.Context()) },
	} {
		var allocations [2]float64
		for i := range allocations {
			h, err := hook(i)
			if err != nil {
				t.Fatal(err)
			}
			allocations[i] = testing.AllocsPerRun(100, func() { post(t, h, h.review) })
		}
		t.Logf("a review of a %s allocates %.0f times", kind, allocations[0])
		if few, many := allocations[0], allocations[1]; many > few+100 {
			t.Errorf("a review of a %s allocates %.0f times where there is much, %.0f where there is little", kind, many, few)
		}
	}
}

func TestACatalogueHasAsManyRulesAsAsked(t *testing.T) {
	for _, n := range numbersOfRules {
		catalogue, err := catalogueOf(n)
		if err != nil {
			t.Fatal(err)
		}
		rules, err := inMemory{nodes: 1, sets: 1}.guardOfSets(catalogue)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(rules.Rules("ConditionSet")); got != n {
			t.Errorf("%d rules instead of %d", got, n)
		}
	}
}
