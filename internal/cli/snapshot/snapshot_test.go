package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
)

const header = "apiVersion: facts.autohealer.resourcestack.com/v1alpha1\nkind: ClusterFacts\ntakenAt: 2026-11-21T12:00:00Z\nserverTime: 2026-11-21T12:00:00Z\n"

func TestRead(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"facts":             {text: header + "nodes: []\n"},
		"another kind":      {text: "apiVersion: v1\nkind: List\n", want: "want apiVersion facts.autohealer.resourcestack.com/v1alpha1 and kind ClusterFacts"},
		"no time":           {text: "apiVersion: facts.autohealer.resourcestack.com/v1alpha1\nkind: ClusterFacts\n", want: "takenAt is missing"},
		"an unknown field":  {text: header + "pods: []\n", want: `unknown field "pods"`},
		"a field twice":     {text: header + "kind: ClusterFacts\n", want: `key "kind" already set`},
		"text that is none": {text: "{", want: "read facts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(c.text))
			if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) && c.want != "" {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestDescribeTellsTheAge(t *testing.T) {
	s, err := Read([]byte(header + "nodes: [{metadata: {name: a}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	if got, want := s.Describe(now), "facts of 1 node and 0 ConditionSets, 25h30m0s old"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestApplyCountsForWhatFollows: what was applied takes room under the limits of all sets.
func TestApplyCountsForWhatFollows(t *testing.T) {
	text := header + "nodes:\n"
	for i := range 20 {
		text += fmt.Sprintf("- {metadata: {name: n%02d}, status: {conditions: [{type: A, status: \"%v\"}, {type: B, status: \"%v\"}]}}\n", i, map[bool]string{true: "True", false: "False"}[i < 2], map[bool]string{true: "True", false: "False"}[i >= 18])
	}
	s, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string) *v1alpha1.ConditionSet {
		cs := &v1alpha1.ConditionSet{}
		if err := yaml.Unmarshal([]byte("{metadata: {name: "+name+"}, spec: {type: T, effect: NoSchedule, taintKey: example.com/"+name+", conditions: {"+strings.ToUpper(name)+": {status: true}}}}"), cs); err != nil {
			t.Fatal(err)
		}
		return cs
	}
	union := func() int { return facts.ForecastConditionSet(set("b"), g.Policy().Limits, time.Time{}).UnionTainted }
	if got := union(); got != 2 {
		t.Errorf("alone: %d nodes, want 2", got)
	}
	facts.Apply(set("a"))
	if got := union(); got != 4 {
		t.Errorf("after the other: %d nodes, want 4", got)
	}
	again := set("a")
	again.Spec.Mode = v1alpha1.Observe
	facts.Apply(again)
	if got := union(); got != 2 {
		t.Errorf("after the other only observes: %d nodes, want 2", got)
	}
}
