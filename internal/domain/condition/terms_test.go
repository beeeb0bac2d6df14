package condition_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// TestWhatAnUpdateMakesWorse changes each field of a spec for the better and for the worse.
func TestWhatAnUpdateMakesWorse(t *testing.T) {
	const base = "type: T\neffect: NoExecute\ntaintKey: example.com/k\n"
	type test struct {
		name, was, is     string
		widened, hardened []string
	}
	tests := []test{
		{"nothing", "conditions: {A: {status: true}}", `conditions: {A: {status: "True"}}`, nil, nil},
		{"type is a name", "conditions: {A: {status: true}}", "type: U\nconditions: {A: {status: true}}", nil, nil},
		{"effect, softer", "conditions: {A: {status: true}}", "effect: NoSchedule\nconditions: {A: {status: true}}", nil, nil},
		{"effect, harder", "effect: NoSchedule\nconditions: {A: {status: true}}", "conditions: {A: {status: true}}", nil, []string{"effect"}},
		{"taintKey", "conditions: {A: {status: true}}", "taintKey: example.com/l\nconditions: {A: {status: true}}", nil, []string{"taintKey"}},
		{"conditions, one more", "conditions: {A: {status: true}}", "conditions: {A: {status: true}, B: {status: false}}", nil, nil},
		{"conditions, one fewer", "conditions: {A: {status: true}, B: {status: false}}", "conditions: {A: {status: true}}", []string{"conditions"}, nil},
		{"conditions, another status", "conditions: {A: {status: true}}", "conditions: {A: {status: unknown}}", []string{"conditions"}, nil},
		{"nodeSelector comes", "", "nodeSelector: {matchLabels: {pool: a}}", nil, nil},
		{"nodeSelector goes", "nodeSelector: {matchLabels: {pool: a}}", "", []string{"nodeSelector"}, nil},
		{"nodeSelector, one label more", "nodeSelector: {matchLabels: {pool: a}}", "nodeSelector: {matchLabels: {pool: a, arch: b}}", nil, nil},
		{"nodeSelector, another value", "nodeSelector: {matchLabels: {pool: a}}", "nodeSelector: {matchLabels: {pool: b}}", []string{"nodeSelector"}, nil},
		{"nodeSelector, fewer values", "nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [a, b]}]}", "nodeSelector: {matchLabels: {pool: a}}", nil, nil},
		{"nodeSelector, more values", "nodeSelector: {matchLabels: {pool: a}}", "nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [a, b]}]}", []string{"nodeSelector"}, nil},
		{"nodeSelector, more that are not", "nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [a]}]}", "nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [b, a]}]}", nil, nil},
		{"nodeSelector, fewer that are not", "nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [a, b]}]}", "nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [a]}]}", []string{"nodeSelector"}, nil},
		{"nodeSelector, the opposite", "nodeSelector: {matchExpressions: [{key: pool, operator: Exists}]}", "nodeSelector: {matchExpressions: [{key: pool, operator: DoesNotExist}]}", []string{"nodeSelector"}, nil},
		{"includeControlPlane, off", "includeControlPlane: true", "", nil, nil},
		{"includeControlPlane, on", "", "includeControlPlane: true", []string{"includeControlPlane"}, nil},
		{"for, longer", "for: 10m", "for: 20m", nil, nil},
		{"for, shorter", "for: 10m", "for: 30s", nil, []string{"for"}},
		{"for, longer than its default", "", "for: 10m", nil, nil},
		{"for, shorter than its default", "", "for: 0s", nil, []string{"for"}},
		{"for goes, which is shorter", "for: 10m", "", nil, []string{"for"}},
		{"recoverAfter", "recoverAfter: 1m", "recoverAfter: 5m", nil, nil},
		{"staleAfter, shorter", "", "staleAfter: 5m", nil, nil},
		{"staleAfter, longer", "", "staleAfter: 20m", nil, []string{"staleAfter"}},
		{"evictAfter comes", "", "evictAfter: 10m", nil, nil},
		{"evictAfter goes", "evictAfter: 10m", "", nil, []string{"evictAfter"}},
		{"evictAfter goes with the eviction", "evictAfter: 10m", "effect: NoSchedule", nil, nil},
		{"maxNodes comes", "", "maxNodes: 30", nil, nil},
		{"maxNodes goes", "maxNodes: 3", "", []string{"maxNodes"}, nil},
		{"maxNodes, lower", "maxNodes: 3", "maxNodes: 2", nil, nil},
		{"maxNodes, higher", "maxNodes: 3", "maxNodes: 4", []string{"maxNodes"}, nil},
		{"maxNodes, a lower share", "maxNodes: 30%", "maxNodes: 9%", nil, nil},
		{"maxNodes, a higher share", "maxNodes: 9%", "maxNodes: 30%", []string{"maxNodes"}, nil},
		{"maxNodes, a share and no longer a number", "maxNodes: 3", "maxNodes: 1%", []string{"maxNodes"}, nil},
		{"mode is judged by itself", "mode: Observe", "mode: Enforce", nil, nil},
		{"what could not be read", "for: soon", "for: 10m", []string{"spec"}, []string{"spec"}},
	}
	whole := func(spec string) *v1alpha1.ConditionSet {
		lines := slices.DeleteFunc(strings.Split(base, "\n"), func(line string) bool {
			field, _, _ := strings.Cut(line, ":")
			return field == "" || strings.HasPrefix(spec, field+":") || strings.Contains(spec, "\n"+field+":")
		})
		if !strings.Contains(spec, "conditions:") {
			lines = append(lines, "conditions: {A: {status: true}}")
		}
		return newConditionSet(t, "x", strings.Join(append(lines, spec), "\n"))
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			terms := condition.TermsOf(whole(tt.is), whole(tt.was))
			if !slices.Equal(terms.Widened, tt.widened) || !slices.Equal(terms.Hardened, tt.hardened) {
				t.Errorf("widened %v, hardened %v; want %v, %v", terms.Widened, terms.Hardened, tt.widened, tt.hardened)
			}
		})
	}
	for f := range reflect.TypeFor[v1alpha1.ConditionSetSpec]().Fields() {
		field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !slices.ContainsFunc(tests, func(tt test) bool { return strings.HasPrefix(tt.name, field) }) {
			t.Errorf("nothing is known of a change of spec.%s", field)
		}
	}
}

func TestTermsOfWhatIsNewOrUnreadable(t *testing.T) {
	set := newConditionSet(t, "x", noSchedule)
	if terms := condition.TermsOf(set, nil); !reflect.DeepEqual(terms, condition.Terms{}) {
		t.Errorf("a new set: %+v", terms)
	}
	set.Spec.NodeSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"zone": "a b"}}
	if terms := condition.TermsOf(set, nil); !strings.HasPrefix(terms.Unreadable, "spec.nodeSelector: ") {
		t.Errorf("a set that can't be read: %+v", terms)
	}
}

// TestWhatMakesNothingWorseTaintsNoMore asks the planner, in random fleets, about random updates: where terms say that nothing
// got worse, no count that a limit is about grows.
func TestWhatMakesNothingWorseTaintsNoMore(t *testing.T) {
	softer := 0
	rapid.Check(t, func(t *rapid.T) {
		c := &crowd{t: t, nodes: map[string]*corev1.Node{}, sets: map[string]types.UID{}, fleet: condition.NewFleet(limit.Builtin())}
		c.fleet.MarkSynced(moment(noon))
		for range rapid.IntRange(1, 60).Draw(t, "nodes") {
			c.node()
		}
		for range rapid.IntRange(0, 5).Draw(t, "sets") {
			c.set()
		}
		old := &v1alpha1.ConditionSet{Spec: c.spec()}
		old.Name = "x"
		updated := old.DeepCopy()
		c.edit(&updated.Spec)
		terms := condition.TermsOf(updated, old)
		was, is := c.forecast(old), c.forecast(updated)
		if len(terms.Widened) == 0 && (is.Matching > was.Matching || is.WouldTaint > was.WouldTaint) {
			t.Fatalf("would taint %d of %d, not %d of %d: from %+v to %+v", is.WouldTaint, is.Matching, was.WouldTaint, was.Matching, old.Spec, updated.Spec)
		}
		if len(terms.Widened)+len(terms.Hardened) > 0 {
			return
		}
		softer++
		if is.UnionTainted > was.UnionTainted || is.ControlPlaneReadyAfter < was.ControlPlaneReadyAfter {
			t.Fatalf("%+v became %+v: from %+v to %+v", was, is, old.Spec, updated.Spec)
		}
	})
	if softer == 0 { // about half of them do, of which -short asks for twenty
		t.Error("no update made nothing worse")
	}
}

func (c *crowd) forecast(cs *v1alpha1.ConditionSet) condition.Forecast {
	return c.fleet.Forecast(cs, limit.Builtin(), moment(noon))
}

// edit changes one or two fields, for the better or the worse.
func (c *crowd) edit(spec *v1alpha1.ConditionSetSpec) {
	other := c.spec()
	for range rapid.IntRange(1, 2).Draw(c.t, "edits") {
		switch c.pick("field", "effect", "conditions", "condition", "nodeSelector", "label", "planes", "maxNodes", "few") {
		case "effect":
			spec.Effect = other.Effect
		case "conditions":
			spec.Conditions = other.Conditions
		case "condition":
			for conditionType, c := range other.Conditions {
				if _, there := spec.Conditions[conditionType]; !there {
					spec.Conditions[conditionType] = c
				}
			}
		case "nodeSelector":
			spec.NodeSelector = other.NodeSelector
		case "label":
			if spec.NodeSelector == nil {
				spec.NodeSelector = &v1alpha1.LabelSelector{}
			}
			spec.NodeSelector.MatchExpressions = append(spec.NodeSelector.MatchExpressions, v1alpha1.LabelSelectorRequirement{Key: "arch", Operator: "Exists"})
		case "planes":
			spec.IncludeControlPlane = other.IncludeControlPlane
		case "maxNodes":
			spec.MaxNodes = other.MaxNodes
		case "few":
			one := intstr.FromInt32(1)
			spec.MaxNodes = &one
		}
	}
}
