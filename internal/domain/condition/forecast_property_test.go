package condition_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// crowd is a fleet whose nodes and sets come, change and go at random.
type crowd struct {
	t     *rapid.T
	fleet *condition.Fleet
	nodes map[string]*corev1.Node
	sets  map[string]types.UID
	rv    int
}

func (c *crowd) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(c.t, label)
}

func (c *crowd) node() {
	name := fmt.Sprintf("n%03d", rapid.IntRange(0, 150).Draw(c.t, "node"))
	was := c.nodes[name]
	if was != nil && c.pick("leaves", "no", "no", "no", "yes") == "yes" {
		delete(c.nodes, name)
		c.fleet.ForgetNode(name, was.UID, moment(noon))
		return
	}
	c.rv++
	n := newNode(name)
	if was != nil {
		n = was.DeepCopy()
	}
	n.ResourceVersion = fmt.Sprint(c.rv)
	for range rapid.IntRange(1, 3).Draw(c.t, "changes") {
		c.change(n)
	}
	c.nodes[name] = n
	c.fleet.ObserveNode(n, moment(noon))
}

func (c *crowd) change(n *corev1.Node) {
	conditionType := c.pick("type", "A", "B", "C", "Ready")
	option := map[string]nodeOption{
		"report": reports(conditionType, c.pick("status", "True", "False", "Unknown"), noon),
		"gone":   gone(conditionType),
		"label":  labelled(c.pick("key", "pool", "arch"), c.pick("value", "a", "b", "c")),
		"unlabel": func(n *corev1.Node) {
			delete(n.Labels, c.pick("key", "pool", "arch", "node-role.kubernetes.io/control-plane"))
		},
		"cordon":   cordoned,
		"uncordon": func(n *corev1.Node) { n.Spec.Unschedulable = false },
		"plane":    controlPlane,
		"deleting": deleting,
		"foreign":  tainted(c.pick("key", "example.com/a", "example.com/b"), c.pick("effect", worldEffects...)),
		"owned":    owning(c.pick("set", "s1", "s2", "gone"), "example.com/a", "NoSchedule", noon),
		"clean": func(n *corev1.Node) {
			n.Spec.Taints, n.Annotations = nil, map[string]string{}
		},
	}[c.pick("change", "report", "report", "report", "report", "gone", "label", "label", "unlabel", "cordon", "uncordon", "plane", "deleting", "foreign", "owned", "clean")]
	option(n)
}

func (c *crowd) spec() v1alpha1.ConditionSetSpec {
	spec := v1alpha1.ConditionSetSpec{
		Type: c.pick("type", "T1", "T2", "T3", "T4", "T5", "T6"), TaintKey: c.pick("key", "example.com/a", "example.com/b"),
		Effect: corev1.TaintEffect(c.pick("effect", worldEffects...)), IncludeControlPlane: rapid.Bool().Draw(c.t, "planes"),
		Conditions: map[string]v1alpha1.MemberCondition{},
	}
	for _, t := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B", "C", "Ready"}), 1, 3, rapid.ID[string]).Draw(c.t, "members") {
		spec.Conditions[t] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: c.pick("required", "true", "true", "false")}}
	}
	if own := c.pick("maxNodes", "", "", "0", "1", "3", "30%", "100%"); own != "" {
		value := intOrPercent(own)
		spec.MaxNodes = &value
	}
	if c.pick("mode", "Enforce", "Enforce", "Enforce", "Observe") == "Observe" {
		spec.Mode = v1alpha1.Observe
	}
	for range rapid.IntRange(0, 2).Draw(c.t, "requirements") {
		r := v1alpha1.LabelSelectorRequirement{Key: c.pick("key", "pool", "arch"), Operator: metav1.LabelSelectorOperator(c.pick("operator", "In", "NotIn", "Exists", "DoesNotExist"))}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 3, rapid.ID[string]).Draw(c.t, "values")
		}
		if spec.NodeSelector == nil {
			spec.NodeSelector = &v1alpha1.LabelSelector{}
		}
		spec.NodeSelector.MatchExpressions = append(spec.NodeSelector.MatchExpressions, r)
	}
	if rapid.IntRange(0, 3).Draw(c.t, "labels") == 0 {
		if spec.NodeSelector == nil {
			spec.NodeSelector = &v1alpha1.LabelSelector{}
		}
		spec.NodeSelector.MatchLabels = map[string]string{"pool": c.pick("value", "a", "d")}
	}
	return spec
}

func (c *crowd) set() {
	name := fmt.Sprintf("s%d", rapid.IntRange(0, 40).Draw(c.t, "set"))
	if uid, there := c.sets[name]; there && rapid.IntRange(0, 4).Draw(c.t, "goes") == 0 {
		delete(c.sets, name)
		c.fleet.ForgetSet(uid, moment(noon))
		return
	}
	c.rv++
	cs := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Generation: int64(c.rv)}, Spec: c.spec()}
	c.sets[name] = cs.UID
	state := rapid.SampledFrom([]lifecycle.State{active, active, active, held, withdrawn}).Draw(c.t, "state")
	if cs.Spec.Mode == v1alpha1.Observe {
		state = withdrawn
	}
	c.fleet.ObserveSet(c.read(cs), state, nil, "", moment(noon))
}

func (c *crowd) read(cs *v1alpha1.ConditionSet) *condition.Set {
	s, err := condition.NewSet(cs)
	if err != nil {
		c.t.Fatalf("set %s: %v", cs.Name, err)
	}
	return s
}

// decide reserves room for a plan, or gives it back.
func (c *crowd) decide() {
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if _, next := c.fleet.Decide(name, moment(noon), &condition.Evidence{}); next == condition.Write && rapid.Bool().Draw(c.t, "fails") {
			c.fleet.Failed(name)
		}
	}
}

func (c *crowd) compare() {
	cs := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: c.pick("of", "s0", "s1", "s2", "new")}, Spec: c.spec()}
	got := c.fleet.Forecast(cs, limit.Builtin(), moment(noon))
	// what is read off the limits and the reporters has tests of its own
	rest := cmpopts.IgnoreFields(condition.Forecast{}, "Nodes", "Limit", "LimitName", "UnionLimit", "UnreportedTypes", "SimilarTypes", "SilentTypes",
		"ControlPlaneReady", "ControlPlaneReadyAfter", "IntolerantSystemPods")
	if diff := cmp.Diff(c.fleet.LookAtEach(c.read(cs)), got, rest, cmpopts.EquateEmpty()); diff != "" {
		c.t.Fatalf("the forecast of %+v differs from a look at each (-), (+):\n%s", cs.Spec, diff)
	}
}

func TestAForecastCountsWhatALookAtEachCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &crowd{t: t, nodes: map[string]*corev1.Node{}, sets: map[string]types.UID{}}
		limits := limit.Builtin()
		limits.MaxTaintedNodes, limits.BreakerPercent = limit.CapOf(intOrPercent("50%")), rapid.SampledFrom([]int{10, 60, 1000}).Draw(t, "breaker")
		c.fleet = condition.NewFleet(limits)
		c.fleet.MarkSynced(moment(noon))
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(1, 20).Draw(t, "nodes") {
				c.node()
			}
			for range rapid.IntRange(0, 5).Draw(t, "sets") {
				c.set()
			}
			if rapid.Bool().Draw(t, "decides") {
				c.decide()
			}
			c.compare()
			c.compare()
		}
	})
}

func TestAForecastOfManyAlikeNamesTheFirstTwenty(t *testing.T) {
	m := manage(t, calm("10%", "5%"), workers(3))
	var want []string
	for i := range 30 {
		name := fmt.Sprintf("s%02d", i)
		want = append(want, name)
		m.fleet.ObserveSet(newSet(t, name, noSchedule), active, nil, "", moment(noon))
	}
	if p := forecast(t, m, "s00", noSchedule); !slices.Equal(p.DuplicateOf, want[1:21]) {
		t.Errorf("duplicates %v, want the first twenty others", p.DuplicateOf)
	}
}
