package condition_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func forecast(t *testing.T, m *manager, name, spec string) condition.Forecast {
	t.Helper()
	return m.fleet.Forecast(newConditionSet(t, name, spec), limit.Builtin(), moment(noon))
}

func TestForecastOfAPlainSet(t *testing.T) {
	nodes := append(renamed("sick", workers(7, kubeletSick)), renamed("well", workers(33, kubeletWell))...)
	nodes = append(nodes, newNode("cp", controlPlane, kubeletSick, reports("Ready", "True", ago(time.Hour))), newNode("leaving", deleting, kubeletSick))
	m := manage(t, calm("10%", "5%"), nodes)
	want := condition.Forecast{
		Nodes: 40, Selected: 40, Matching: 7, WouldTaint: 7,
		MatchingNodes: []string{"sickw00", "sickw01", "sickw02", "sickw03", "sickw04", "sickw05", "sickw06"},
		Limit:         4, LimitName: "maxTaintedNodes", UnionTainted: 7, UnionLimit: 4,
		ControlPlaneReady: 1, ControlPlaneReadyAfter: 1,
	}
	if diff := cmp.Diff(want, forecast(t, m, "a", noSchedule)); diff != "" {
		t.Errorf("forecast differs (- want, + got):\n%s", diff)
	}
}

func TestForecastNamesAtMostTwentyNodes(t *testing.T) {
	p := forecast(t, manage(t, calm("10%", "5%"), workers(60, kubeletSick)), "a", noSchedule)
	if p.Matching != 60 || len(p.MatchingNodes) != 20 || p.MatchingNodes[0] != "w00" || p.MatchingNodes[19] != "w19" {
		t.Errorf("%d matching, named %v; want 60, and the first 20 in order", p.Matching, p.MatchingNodes)
	}
}

func TestForecastOfLimits(t *testing.T) {
	const prefer = "effect: PreferNoSchedule\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
	const evict = "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
	tests := []struct {
		name, spec                    string
		wouldTaint, limit, union, cap int
		limitName                     string
	}{
		{"NoSchedule counts for maxTaintedNodes", noSchedule, 10, 4, 10, 4, "maxTaintedNodes"},
		{"NoExecute counts for maxEvictingNodes", evict, 10, 2, 10, 4, "maxEvictingNodes"},
		{"PreferNoSchedule is free", prefer, 10, math.MaxInt32, 0, 4, ""},
		{"maxNodes as a number", "maxNodes: 3\n" + noSchedule, 3, 4, 3, 4, "maxTaintedNodes"},
		{"maxNodes as a percentage", "maxNodes: 5%\n" + noSchedule, 2, 4, 2, 4, "maxTaintedNodes"},
		{"maxNodes above what matches", "maxNodes: 30\n" + noSchedule, 10, 4, 10, 4, "maxTaintedNodes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manage(t, calm("10%", "5%"), append(renamed("sick", workers(10, kubeletSick)), workers(30)...))
			p := forecast(t, m, "a", tt.spec)
			if p.Matching != 10 || p.WouldTaint != tt.wouldTaint || p.Limit != tt.limit || p.LimitName != tt.limitName || p.UnionTainted != tt.union || p.UnionLimit != tt.cap {
				t.Errorf("forecast %+v", p)
			}
		})
	}
}

func TestForecastOfTheUnionWithOtherSets(t *testing.T) {
	const other = "effect: NoSchedule\ntaintKey: example.com/other\nconditions: {KernelDeadlock: {status: true}}"
	both := workers(2, kubeletSick, kernelSick)
	nodes := append(append(both, renamed("kubelet", workers(3, kubeletSick))...), renamed("kernel", workers(4, kernelSick))...)
	nodes = append(nodes, renamed("well", workers(31))...)
	stored := func(spec string, state lifecycle.State) int {
		m := manage(t, calm("10%", "5%"), nodes)
		m.fleet.ObserveSet(newSet(t, "o", spec), state, nil, "", moment(noon))
		return forecast(t, m, "a", noSchedule).UnionTainted
	}
	for _, tt := range []struct {
		name string
		got  int
		want int
	}{
		{"another set's nodes count once", stored(other, active), 9},
		{"a set that isn't admitted doesn't count", stored(other, held), 5},
		{"an observing set doesn't count", stored("mode: Observe\n"+other, withdrawn), 5},
		{"PreferNoSchedule doesn't count", stored("effect: PreferNoSchedule\ntaintKey: example.com/other\nconditions: {KernelDeadlock: {status: true}}", active), 5},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: union %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	m := manage(t, calm("10%", "5%"), nodes, newSet(t, "a", other))
	if p := forecast(t, m, "a", noSchedule); p.UnionTainted != 5 {
		t.Errorf("union %d, want 5: the stored set of the same name is replaced", p.UnionTainted)
	}
}

func TestForecastOfReporters(t *testing.T) {
	const spec = "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}, Custom: {status: true}, NTPProblem: {status: true}}"
	tests := []struct {
		name               string
		nodes              []*corev1.Node
		unreported, silent []string
	}{
		{"nobody reports anything", workers(3), []string{"Custom"}, nil},
		{"one node reports it", append(workers(3), newNode("n", reports("Custom", "False", noon))), nil, nil},
		{"silent on every node", workers(3, kubeletSilent), []string{"Custom"}, []string{"KubeletUnhealthy"}},
		{"alive on one node", append(workers(3, kubeletSilent), newNode("n", kubeletWell)), []string{"Custom"}, nil},
		{"two are silent", workers(3, kubeletSilent, reportsAt("Custom", "False", ago(9*time.Hour), ago(9*time.Hour))), nil, []string{"Custom", "KubeletUnhealthy"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := forecast(t, manage(t, calm("10%", "5%"), tt.nodes), "a", spec)
			if diff := cmp.Diff(tt.unreported, p.UnreportedTypes); diff != "" {
				t.Errorf("unreported types differ:\n%s", diff)
			}
			if diff := cmp.Diff(tt.silent, p.SilentTypes); diff != "" {
				t.Errorf("silent types differ:\n%s", diff)
			}
		})
	}
}

// TestForecastSuggestsTypes that are built in, declared or reported.
func TestForecastSuggestsTypes(t *testing.T) {
	m := manage(t, calm("10%", "5%"), append(workers(3), newNode("n", reports("GPUBroken", "False", noon))))
	m.fleet.SetPolicy(policy(calm("10%", "5%"), func(p *condition.Policy) { p.DeclaredTypes = []string{"DiskSlow"} }), moment(noon))
	p := forecast(t, m, "a", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {KernelDeadLock: {status: true}, DiskSlo: {status: true}, GpuBroken: {status: true}, Nonsense: {status: true}}")
	slices.Sort(p.SimilarTypes)
	if want := []string{"DiskSlow", "GPUBroken", "KernelDeadlock"}; !slices.Equal(p.SimilarTypes, want) {
		t.Errorf("got %q, want %q", p.SimilarTypes, want)
	}
}

func TestForecastForgetsAConditionThatVanished(t *testing.T) {
	m := manage(t, calm("10%", "5%"), append(workers(3), newNode("n", reports("Custom", "True", noon))))
	const spec = "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {Custom: {status: true}}"
	if p := forecast(t, m, "a", spec); p.Matching != 1 || p.UnreportedTypes != nil {
		t.Errorf("forecast %+v", p)
	}
	m.see("n", gone("Custom"))
	if p := forecast(t, m, "a", spec); p.Matching != 0 || len(p.UnreportedTypes) != 1 {
		t.Errorf("forecast %+v after it vanished; want none matching, the type unreported", p)
	}
}

func TestForecastOfForeignTaints(t *testing.T) {
	nodes := []*corev1.Node{
		newNode("foreign", tainted("example.com/k", "NoSchedule")), newNode("foreign2", tainted("example.com/k", "NoExecute")),
		newNode("ours", owning("o", "example.com/k", "NoSchedule", ago(time.Hour))), newNode("otherkey", tainted("example.com/z", "NoSchedule")), newNode("plain"),
	}
	m := manage(t, calm("10%", "5%"), nodes)
	p := forecast(t, m, "a", noSchedule)
	if diff := cmp.Diff([]string{"foreign", "foreign2"}, p.ForeignTaintedNodes); diff != "" || p.ForeignTainted != 2 {
		t.Errorf("%d foreign:\n%s", p.ForeignTainted, diff)
	}
	m.see("foreign", func(n *corev1.Node) { n.Spec.Taints = nil })
	if p := forecast(t, m, "a", noSchedule); p.ForeignTainted != 1 {
		t.Errorf("%d foreign after one was removed, want 1", p.ForeignTainted)
	}
}

func TestForecastOfOtherSets(t *testing.T) {
	stored := map[string]string{
		"sameconditions": "effect: NoSchedule\ntaintKey: example.com/z\nconditions: {A: {status: true}, B: {status: true}}",
		"sametype":       "type: Twin\neffect: NoSchedule\ntaintKey: example.com/z\nconditions: {Z: {status: true}}",
		"subset":         "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {A: {status: true}}",
		"subsetotherkey": "effect: NoSchedule\ntaintKey: example.com/z\nconditions: {B: {status: true}}",
		"superset":       "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {A: {status: true}, B: {status: true}, C: {status: true}}",
		"otherstatus":    "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {A: {status: false}}",
		"a":              "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {A: {status: true}, B: {status: true}}",
	}
	m := manage(t, calm("10%", "5%"), workers(3))
	for name, spec := range stored {
		m.fleet.ObserveSet(newSet(t, name, spec), active, nil, "", moment(noon))
	}
	p := forecast(t, m, "a", "type: Twin\neffect: NoSchedule\ntaintKey: example.com/k\nconditions: {A: {status: true}, B: {status: \"True\"}}")
	if diff := cmp.Diff([]string{"sameconditions", "sametype"}, p.DuplicateOf); diff != "" {
		t.Errorf("duplicates differ:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"subset"}, p.ImpliedBy); diff != "" {
		t.Errorf("implied by differs:\n%s", diff)
	}
}

func TestForecastOfTheControlPlane(t *testing.T) {
	const evict = "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
	ready, notReady := reports("Ready", "True", ago(time.Hour)), reports("Ready", "False", ago(time.Hour))
	tests := []struct {
		name                   string
		spec                   string
		planes                 []*corev1.Node
		selected, ready, after int
	}{
		{"one of three is evicted at a time", "includeControlPlane: true\n" + evict, []*corev1.Node{newNode("a", controlPlane, ready, kubeletSick), newNode("b", controlPlane, ready, kubeletSick), newNode("c", controlPlane, ready)}, 8, 3, 2},
		{"the last one", "includeControlPlane: true\n" + evict, []*corev1.Node{newNode("a", controlPlane, ready, kubeletSick)}, 6, 1, 0},
		{"one that isn't Ready takes none away", "includeControlPlane: true\n" + evict, []*corev1.Node{newNode("a", controlPlane, notReady, kubeletSick), newNode("b", controlPlane, ready)}, 7, 1, 1},
		{"NoSchedule takes none away", "includeControlPlane: true\n" + noSchedule, []*corev1.Node{newNode("a", controlPlane, ready, kubeletSick)}, 6, 1, 1},
		{"left out", evict, []*corev1.Node{newNode("a", controlPlane, ready, kubeletSick)}, 5, 1, 1},
		{"one that is being deleted doesn't count", "includeControlPlane: true\n" + evict, []*corev1.Node{newNode("a", controlPlane, ready, kubeletSick, deleting), newNode("b", controlPlane, ready)}, 6, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := forecast(t, manage(t, calm("10%", "5%"), append(workers(5), tt.planes...)), "s", tt.spec)
			if p.Nodes != 5 || p.Selected != tt.selected || p.ControlPlaneReady != tt.ready || p.ControlPlaneReadyAfter != tt.after {
				t.Errorf("%d nodes, %d selected, %d ready, %d after; want 5, %d, %d, %d", p.Nodes, p.Selected, p.ControlPlaneReady, p.ControlPlaneReadyAfter, tt.selected, tt.ready, tt.after)
			}
		})
	}
}

func TestForecastFollowsReadiness(t *testing.T) {
	m := manage(t, calm("10%", "5%"), append(workers(5), newNode("cp", controlPlane, reports("Ready", "True", ago(time.Hour)))))
	m.see("cp", reports("Ready", "Unknown", noon))
	if p := forecast(t, m, "a", noSchedule); p.ControlPlaneReady != 0 {
		t.Errorf("%d control-plane nodes ready, want none", p.ControlPlaneReady)
	}
}

func TestForecastOfSystemPods(t *testing.T) {
	const evict = "effect: NoExecute\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
	m := manage(t, calm("10%", "5%"), workers(5, labelled("pool", "a")))
	m.fleet.ObserveSystemPods([]ecosystem.SystemPod{
		{Namespace: "kube-system", Name: "npd", Role: "condition reporter"},
		{Namespace: "kube-system", Name: "cilium", Role: "CNI", Tolerations: []corev1.Toleration{{Operator: "Exists"}}},
		{Namespace: "csi", Name: "driver", Role: "CSI", Tolerations: []corev1.Toleration{{Key: "example.com/other", Operator: "Exists"}}},
	})
	if diff := cmp.Diff([]string{"csi/driver (CSI)", "kube-system/npd (condition reporter)"}, forecast(t, m, "a", evict).IntolerantSystemPods); diff != "" {
		t.Errorf("intolerant pods differ:\n%s", diff)
	}
	if got := forecast(t, m, "a", noSchedule).IntolerantSystemPods; got != nil {
		t.Errorf("NoSchedule evicts %v", got)
	}
	if got := forecast(t, m, "a", "nodeSelector: {matchLabels: {pool: b}}\n"+evict).IntolerantSystemPods; got != nil {
		t.Errorf("a set that selects nothing evicts %v", got)
	}
}

func TestForecastOfASpecThatCannotBeRead(t *testing.T) {
	m := manage(t, calm("10%", "5%"), workers(5))
	const spec = "effect: NoSchedule\ntaintKey: k\nconditions: {A: {status: maybe}}"
	if diff := cmp.Diff(condition.Forecast{}, forecast(t, m, "a", spec)); diff != "" {
		t.Errorf("nothing is foretold of it, not %s", diff)
	}
	if _, err := condition.NewSet(newConditionSet(t, "a", spec)); err == nil {
		t.Error("no error")
	}
}
