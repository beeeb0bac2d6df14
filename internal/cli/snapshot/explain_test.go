package snapshot_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/guard"
)

// acting is a manager that has watched from the beginning, and the cluster that it acts on.
type acting struct {
	t     *rapid.T
	fleet *condition.Fleet
	nodes map[string]*corev1.Node
	names []string
	sets  []v1alpha1.ConditionSet
	rails []v1alpha1.Guardrail
}

// draw makes a cluster whose conditions turned at some time in the last ten minutes.
func draw(t *rapid.T) *acting {
	a := &acting{t: t, nodes: map[string]*corev1.Node{}}
	rail := v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "rail", UID: "rail"}}
	tainted := intstr.Parse(rapid.SampledFrom([]string{"1", "2", "30%", "100%"}).Draw(t, "maxTainted"))
	rail.Spec.Limits = &v1alpha1.GuardrailLimits{MaxTaintedNodes: &tainted, MaxEvictingNodes: &tainted}
	rail.Spec.Paused = rapid.IntRange(0, 9).Draw(t, "paused") == 0
	a.rails = []v1alpha1.Guardrail{rail}
	for i := range rapid.IntRange(1, 4).Draw(t, "sets") {
		a.sets = append(a.sets, a.drawSet(i))
	}
	for i := range rapid.IntRange(3, 24).Draw(t, "nodes") {
		a.drawNode(fmt.Sprintf("n%02d", i))
	}
	return a
}

func (a *acting) drawSet(i int) v1alpha1.ConditionSet {
	t := a.t
	cs := v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("s%d", i), UID: types.UID(fmt.Sprintf("u%d", i)), Generation: 1,
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour + time.Duration(i)*time.Minute)), Finalizers: []string{v1alpha1.FinalizerUndo},
	}}
	cs.Spec = v1alpha1.ConditionSetSpec{
		Type: "T", Effect: corev1.TaintEffect(rapid.SampledFrom([]string{"NoExecute", "NoSchedule", "PreferNoSchedule"}).Draw(t, "effect")),
		TaintKey:     rapid.SampledFrom([]string{"example.com/a", "example.com/b"}).Draw(t, "key"),
		For:          v1alpha1.Duration(rapid.SampledFrom([]string{"0s", "90s", "8m"}).Draw(t, "for")),
		RecoverAfter: v1alpha1.Duration(rapid.SampledFrom([]string{"0s", "90s"}).Draw(t, "recoverAfter")),
		Conditions:   map[string]v1alpha1.MemberCondition{},
	}
	for _, c := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"KernelDeadlock", "KubeletUnhealthy"}), 1, 2, rapid.ID[string]).Draw(t, "members") {
		cs.Spec.Conditions[c] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: "true"}}
	}
	cs.Status.TaintKeys = []string{cs.Spec.TaintKey}
	return cs
}

func (a *acting) drawNode(name string) {
	t := a.t
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), ResourceVersion: "1", Annotations: map[string]string{},
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Labels: map[string]string{corev1.LabelTopologyZone: name},
	}}
	if until := rapid.SampledFrom([]string{"", "", "", "", "2026-11-21T12:10:00Z", "2026-11-21T11:00:00Z", "soon"}).Draw(t, "hold"); until != "" {
		node.Annotations[v1alpha1.AnnotationHoldUntil] = until
	}
	for _, c := range []corev1.NodeConditionType{"KernelDeadlock", "KubeletUnhealthy", corev1.NodeReady} {
		node.Status.Conditions = append(node.Status.Conditions, a.drawCondition(c))
	}
	a.nodes[name], a.names = node, append(a.names, name)
}

func (a *acting) drawCondition(of corev1.NodeConditionType) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: of, Status: corev1.ConditionStatus(rapid.SampledFrom([]string{"True", "False", "False", "False", "False", "Unknown"}).Draw(a.t, "status")),
		LastTransitionTime: metav1.NewTime(noon.Add(-time.Duration(rapid.IntRange(61, 600).Draw(a.t, "ago")) * time.Second)),
		LastHeartbeatTime:  metav1.NewTime(noon.Add(-time.Second)),
	}
}

// begin lets the manager watch from long ago.
func (a *acting) begin(policy condition.Policy) {
	a.fleet = condition.NewFleet(limit.Builtin())
	a.fleet.SetPolicy(policy, at(noon))
	for _, name := range a.names {
		a.fleet.ObserveNode(a.nodes[name], timing.Moment{Now: turned(a.nodes[name]), Server: noon})
	}
	for i := range a.sets {
		set, err := condition.NewSet(&a.sets[i])
		if err != nil {
			a.t.Fatal(err)
		}
		a.fleet.ObserveSet(set, condition.StateOf(&a.sets[i], true, true), nil, "", at(noon))
	}
	a.fleet.MarkSynced(at(noon))
}

func turned(n *corev1.Node) (last time.Time) {
	for _, c := range n.Status.Conditions {
		if c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	return last
}

func at(now time.Time) timing.Moment { return timing.Moment{Now: now, Server: now} }

// settle lets the manager act on all nodes, in any order, until nothing is left to do.
func (a *acting) settle() {
	order := rapid.Permutation(a.names).Draw(a.t, "order")
	for range 10 {
		wrote := false
		for _, name := range order {
			plan, next := a.fleet.Decide(name, at(noon), &condition.Evidence{})
			if next == condition.Write {
				a.write(plan)
				wrote = true
			}
		}
		if !wrote {
			return
		}
	}
	a.t.Fatal("the manager never gets done")
}

func (a *acting) write(plan condition.Plan) {
	node := a.nodes[plan.Node.Name].DeepCopy()
	node.Spec.Taints = plan.Taints
	node.Annotations[v1alpha1.AnnotationOwnedTaints] = plan.Owned.String()
	var version int
	_, _ = fmt.Sscan(node.ResourceVersion, &version)
	node.ResourceVersion = fmt.Sprint(version + 1)
	a.nodes[node.Name] = node
	a.fleet.Written(node.Name, node.ResourceVersion)
	a.fleet.ObserveNode(node, at(noon))
}

// view is what explain says of every node, by a fresh look at the same cluster.
func (a *acting) view(g *guard.Guard) []snapshot.NodeView {
	for i := range a.sets {
		a.sets[i].Status.Breaker = nil
		if sum, ok := a.fleet.Summary(a.sets[i].UID, at(noon)); ok && sum.Breaker != nil {
			a.sets[i].Status.Breaker = &v1alpha1.Breaker{ID: sum.Breaker.ID, OpenedAt: metav1.NewTime(sum.Breaker.OpenedAt)}
		}
	}
	objects := []client.Object{&a.rails[0]}
	for i := range a.sets {
		objects = append(objects, &a.sets[i])
	}
	for _, name := range a.names {
		objects = append(objects, a.nodes[name])
	}
	s := snapshot.Of(a.t, noon.Add(time.Hour), noon, objects...)
	f, err := snapshot.NewWatchedFacts(a.t.Context(), s, g, "autohealer-system")
	if err != nil {
		a.t.Fatal(err)
	}
	return f.ViewNodes(a.names...)
}

// TestExplainAndActNeverDisagree: for every node of any cluster, what a fresh look says would be done, and what it says is in the
// way, is what the manager that watched does, and what is in its way; and what people read says just that.
func TestExplainAndActNeverDisagree(t *testing.T) {
	g, err := guard.New(guard.Options{Clock: testingclock.NewFakePassiveClock(noon)})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t)
		a.begin(a.underRails(g))
		a.settle()
		a.agree(a.view(g))

		a.recovers(rapid.SampledFrom(a.names).Draw(t, "recovers"))
		if a.rails[0].Spec.Frozen = rapid.Bool().Draw(t, "frozen"); a.rails[0].Spec.Frozen {
			a.fleet.SetPolicy(a.underRails(g), at(noon))
		}
		a.agree(a.view(g))
	})
}

// underRails is the policy that the Guardrails make.
func (a *acting) underRails(g *guard.Guard) condition.Policy {
	g.SetGuardrails([]*v1alpha1.Guardrail{&a.rails[0]})
	return snapshot.PolicyOf(g.Policy())
}

// recovers turns all conditions of a node healthy two minutes ago.
func (a *acting) recovers(name string) {
	node := a.nodes[name].DeepCopy()
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].Status, node.Status.Conditions[i].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(noon.Add(-2*time.Minute))
	}
	node.ResourceVersion += "0"
	a.nodes[name] = node
	a.fleet.ObserveNode(node, at(noon.Add(-2*time.Minute)))
}

// agree compares a view, and what is told of it, with what the manager decides now, node by node.
func (a *acting) agree(views []snapshot.NodeView) {
	if len(views) != len(a.names) {
		a.t.Fatalf("%d nodes are explained, want %d", len(views), len(a.names))
	}
	for i, v := range views {
		plan, _ := a.fleet.Decide(a.names[i], at(noon), &condition.Evidence{NotRead: true})
		if got, want := words(v.Plan), words(plan); got != want {
			a.t.Errorf("%s: explain says\n%s\nthe manager\n%s", a.names[i], got, want)
		}
		text := explain.Node(v)
		if got, want := a.said(text), a.toSay(plan); got != want {
			a.t.Errorf("%s: one reads\n%s\nthe manager's plan is\n%s\nin\n%s", a.names[i], got, want, text)
		}
	}
}

func words(p condition.Plan) string {
	var all []string
	for _, s := range p.Steps {
		all = append(all, fmt.Sprintf("%s %s %s->%s for %s: %s", s.Verb, s.Key, s.From, s.To, s.SetName, s.Reason))
	}
	for _, h := range p.Holds {
		all = append(all, fmt.Sprintf("held for %s: %s (%s)", h.Set, h.Message, h.Reason))
	}
	slices.Sort(all)
	return strings.Join(append(all, fmt.Sprintf("needs evidence: %t", p.NeedsEvidence)), "\n")
}

var (
	ofSet  = regexp.MustCompile(`^  ConditionSet (\S+): `)
	isSaid = regexp.MustCompile(`^    (Now|Not now, since everything is frozen|Held back): (.*?)(; in line since .*)?$`)
)

// said is what a text says of each set that is done, or isn't and why.
func (a *acting) said(text string) string {
	set, all := "", []string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := ofSet.FindStringSubmatch(line); m != nil {
			set = m[1]
		}
		if m := isSaid.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], "an eviction is due") {
			all = append(all, fmt.Sprintf("%s: %s: %s", set, m[1], m[2]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// toSay is what is to be said of a plan.
func (a *acting) toSay(p condition.Plan) string {
	var all []string
	step := func(when string, s condition.Step) {
		does := map[condition.Verb]string{
			condition.Taint: fmt.Sprintf("taint %s:%s", s.Key, s.To), condition.Untaint: fmt.Sprintf("remove %s:%s", s.Key, s.From),
			condition.Escalate: fmt.Sprintf("change %s from %s to %s", s.Key, s.From, s.To), condition.Deescalate: fmt.Sprintf("change %s from %s to %s", s.Key, s.From, s.To),
		}[s.Verb]
		if does == "" {
			does = "correct the record of " + s.Key
		}
		all = append(all, fmt.Sprintf("%s: %s: %s (%s)", s.SetName, when, does, s.Reason))
	}
	for _, s := range p.Steps {
		step("Now", s)
	}
	for _, s := range p.Frozen {
		step("Not now, since everything is frozen", s)
	}
	for _, h := range p.Holds {
		all = append(all, fmt.Sprintf("%s: Held back: %s (%s)", a.nameOf(h.Set), h.Message, h.Reason))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (a *acting) nameOf(set types.UID) string {
	for i := range a.sets {
		if a.sets[i].UID == set {
			return a.sets[i].Name
		}
	}
	return "none"
}
