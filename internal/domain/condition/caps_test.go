package condition_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestTheCaps(t *testing.T) {
	plane := func(n int) []*corev1.Node {
		var nodes []*corev1.Node
		for i := range n {
			nodes = append(nodes, newNode(fmt.Sprintf("cp%d", i), controlPlane))
		}
		return nodes
	}
	going := func(n int) []*corev1.Node {
		var nodes []*corev1.Node
		for i := range n {
			nodes = append(nodes, newNode(fmt.Sprintf("going%d", i), deleting))
		}
		return nodes
	}
	zoned := func(n int, zones ...string) []*corev1.Node {
		nodes := workers(n, kubeletSick)
		for i, w := range nodes {
			inZone(zones[i%len(zones)])(w)
		}
		return nodes
	}
	tests := []struct {
		name  string
		nodes []*corev1.Node
		want  int
	}{
		{"10% of 30", workers(30, kubeletSick), 3},
		{"10% of 29 rounds down", workers(29, kubeletSick), 2},
		{"one of three", workers(3, kubeletSick), 1},
		{"none of two", workers(2, kubeletSick), 0},
		{"control-plane nodes don't count", append(workers(19, kubeletSick), plane(5)...), 1},
		{"nodes that are being deleted don't count", append(workers(19, kubeletSick), going(5)...), 1},
		{"two zones have no cap of their own", zoned(30, "a", "b"), 3},
		{"three zones do", zoned(30, "a", "b", "c"), 3},
		{"the cap of a zone holds before the cluster's", append(zoned(20, "a"), append(renamed("b", zoned(30, "b")), renamed("c", zoned(30, "c"))...)...), 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manage(t, calm("10%", "5%"), tt.nodes, newSet(t, "a", noSchedule))
			for _, name := range m.fleet.Nodes() {
				m.settle(name)
			}
			if got := m.tainted("example.com/k"); len(got) != tt.want {
				t.Errorf("%d tainted (%v), want %d", len(got), got, tt.want)
			}
		})
	}
}

func renamed(prefix string, nodes []*corev1.Node) []*corev1.Node {
	for _, n := range nodes {
		n.Name, n.UID = prefix+n.Name, types.UID(prefix)+n.UID
	}
	return nodes
}

func TestAZonesCapHoldsThoughTheClusterHasRoom(t *testing.T) {
	nodes := renamed("a", workers(10, kubeletSick, inZone("a")))
	nodes = append(nodes, renamed("b", workers(10, inZone("b")))...)
	nodes = append(nodes, renamed("c", workers(10, inZone("c")))...)
	m := manage(t, calm("10%", "5%"), nodes, newSet(t, "a", noSchedule))
	m.settle("aw00")
	plan, _ := m.decide("aw01")
	if len(plan.Holds) != 1 || plan.Holds[0].Message != `maxTaintedNodes 10% allows 1 of 10 nodes of zone "a", and 1 is tainted` {
		t.Errorf("holds %+v", plan.Holds)
	}
}

func TestTheCapsMessageHasTheNumbers(t *testing.T) {
	m := manage(t, calm("10%", "5%"), workers(25, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.settle("w01")
	plan, _ := m.decide("w02")
	if len(plan.Holds) != 1 || plan.Holds[0].Message != "maxTaintedNodes 10% allows 2 of 25 nodes, and 2 are tainted" {
		t.Errorf("holds %+v", plan.Holds)
	}
}

func TestThoseWhoWaitedLongestGoFirst(t *testing.T) {
	for name, set := range map[string]string{"of all sets": noSchedule, "of a set's own cap": "maxNodes: 1\n" + noSchedule} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm("1", "1"), workers(10), newSet(t, "a", set))
			for i, name := range []string{"w00", "w07", "w05", "w03"} {
				m.now = noon.Add(time.Duration(i) * time.Minute)
				m.see(name, reports("KubeletUnhealthy", "True", m.now))
				m.settle(name)
			}
			m.see("w00", kubeletWell)
			m.settle("w00")
			for _, later := range []string{"w03", "w05"} {
				if _, next := m.decide(later); next != condition.Nothing {
					t.Errorf("%s went before w07, which has waited longer", later)
				}
			}
			if !m.settle("w07") {
				t.Error("the first in the queue didn't go")
			}
		})
	}
}

func TestANodeIsAvailableUnlessItIsOnItsWay(t *testing.T) {
	for name, tt := range map[string]struct {
		options   []nodeOption
		available bool
	}{
		"Ready":                              {nil, true},
		"notReady":                           {[]nodeOption{reports("Ready", "False", noon)}, false},
		"nobody knows":                       {[]nodeOption{reports("Ready", "Unknown", noon)}, false},
		"it just joined":                     {[]nodeOption{gone("Ready")}, false},
		"cordoned":                           {[]nodeOption{cordoned}, false},
		"a pool of Windows":                  {[]nodeOption{tainted("node.kubernetes.io/os", "NoSchedule")}, true},
		"a CSI driver isn't there yet":       {[]nodeOption{tainted("disk.csi.azure.com/agent-not-ready", "NoSchedule")}, false},
		"Kubernetes keeps pods away":         {[]nodeOption{tainted("node.kubernetes.io/disk-pressure", "NoSchedule")}, false},
		"a cloud's shutdown":                 {[]nodeOption{tainted("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule")}, false},
		"Cluster Autoscaler deletes it":      {[]nodeOption{tainted("ToBeDeletedByClusterAutoscaler", "NoSchedule")}, false},
		"Cluster Autoscaler may":             {[]nodeOption{tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")}, true},
		"Karpenter disrupts it":              {[]nodeOption{tainted("karpenter.sh/disrupted", "NoSchedule")}, false},
		"AWS takes it":                       {[]nodeOption{tainted("aws-node-termination-handler/spot-itn", "NoSchedule")}, false},
		"AKS repairs it":                     {[]nodeOption{tainted("remediator.kubernetes.azure.com/unschedulable", "NoSchedule")}, false},
		"medik8s repairs it":                 {[]nodeOption{tainted("medik8s.io/remediation", "NoExecute")}, false},
		"Cilium isn't there yet":             {[]nodeOption{tainted("node.cilium.io/agent-not-ready", "NoExecute")}, false},
		"a dedicated pool":                   {[]nodeOption{tainted("example.com/dedicated", "NoSchedule"), tainted("nvidia.com/gpu", "NoSchedule")}, true},
		"a pool of spot instances":           {[]nodeOption{tainted("kubernetes.azure.com/scalesetpriority", "NoSchedule")}, true},
		"a key that only looks like leaving": {[]nodeOption{tainted("example.com/ToBeDeletedByClusterAutoscaler", "NoSchedule")}, true},
		"our own taint is counted by itself": {[]nodeOption{tainted("example.com/k", "NoExecute"), owning("a", "example.com/k", "NoExecute", noon)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if n := condition.NewNode(newNode("n", tt.options...), nil, noon); n.Available != tt.available {
				t.Errorf("available: %t", n.Available)
			}
		})
	}
}

func TestNodesThatArentAvailableAreNoneThatPercentagesAreOf(t *testing.T) {
	const away = "# away\n"
	quarter := "maxNodes: 25%\n" + noSchedule
	for name, tt := range map[string]struct {
		limits    string
		spec      string
		available int // of the nodes beside the sick one
		away      int
		goes      bool
		message   string
	}{
		"three are left":            {"10%", noSchedule, 2, 10, true, ""},
		"the last one":              {"10%", noSchedule, 0, 2, false, "maxTaintedNodes 10% allows 0 of 1 nodes, and 0 are tainted; 2 more are cordoned, not Ready or tainted as leaving and don't count"},
		"the last two":              {"100%", noSchedule, 1, 10, false, "maxTaintedNodes 100% allows 0 of 2 nodes, and 0 are tainted; 10 more are cordoned, not Ready or tainted as leaving and don't count"},
		"the sick one is away, too": {"10%", away + noSchedule, 2, 10, true, ""},
		"of the set's own cap":      {"100%", quarter, 2, 10, true, ""},
		"of the set's own cap, too": {"100%", quarter, 1, 10, false, "maxNodes 25% allows 0 of 2 selected nodes, and 0 are tainted; 10 more are cordoned, not Ready or tainted as leaving and don't count"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []*corev1.Node{newNode("sick", kubeletSick)}
			if strings.HasPrefix(tt.spec, away) {
				tainted("node.kubernetes.io/disk-pressure", "NoSchedule")(nodes[0])
			}
			for i := range tt.available {
				nodes = append(nodes, newNode(fmt.Sprintf("well%d", i)))
			}
			for i := range tt.away {
				nodes = append(nodes, newNode(fmt.Sprintf("away%d", i), []nodeOption{cordoned, reports("Ready", "Unknown", noon)}[i%2]))
			}
			m := manage(t, calm(tt.limits, "100%"), nodes, newSet(t, "a", tt.spec))
			if goes := m.settle("sick"); goes != tt.goes {
				t.Errorf("tainted: %t", goes)
			}
			sum, _ := m.fleet.Summary("a-uid", moment(noon))
			said := ""
			for _, h := range sum.Holds {
				said = h.Message
			}
			if said != tt.message {
				t.Errorf("says %q", said)
			}
		})
	}
}

func TestWhenNodesComeBackTheLimitGrows(t *testing.T) {
	nodes := append(workers(2), newNode("sick", kubeletSick), newNode("away", cordoned))
	m := manage(t, calm("10%", "5%"), nodes, newSet(t, "a", noSchedule))
	for _, name := range []string{"w00", "w01"} {
		m.see(name, cordoned)
	}
	if m.settle("sick") {
		t.Error("tainted though it is the last one")
	}
	for _, name := range []string{"w00", "w01"} {
		wake := m.woken(func() { m.see(name, func(n *corev1.Node) { n.Spec.Unschedulable = false }) })
		if name == "w01" && !slices.Contains(wake, "sick") {
			t.Errorf("woken: %v", wake)
		}
	}
	if !m.settle("sick") {
		t.Error("held back though three are there")
	}
}

func TestANodeWhoseRecordCannotBeReadCountsByItsTaints(t *testing.T) {
	unreadable := newNode("x", tainted("example.com/k", "NoExecute"), recorded("{"))
	foreign := newNode("y", tainted("corp.example/theirs", "NoExecute"), recorded("{"))
	m := manage(t, calm("1", "1"), append(workers(10, kubeletSick), unreadable, foreign), newSet(t, "a", noSchedule))
	if use := m.fleet.Usage(); use.Tainted != 1 || use.Evicting != 1 || m.settle("w00") {
		t.Errorf("%d repelling, %d evicting; want the one that carries a declared key to take the place", use.Tainted, use.Evicting)
	}
	m.see("x", func(n *corev1.Node) { n.Spec.Taints = nil })
	if !m.settle("w00") {
		t.Error("the place isn't free though the taint is gone")
	}
	m.fleet.ObserveSet(newSet(t, "b", "effect: NoSchedule\ntaintKey: corp.example/theirs\nconditions: {Custom: {status: true}}"), active, nil, "", moment(noon))
	if use := m.fleet.Usage(); use.Tainted != 2 {
		t.Errorf("%d repelling, want a key to count from its declaration on", use.Tainted)
	}
	m.see("y", recorded(""))
	if use := m.fleet.Usage(); use.Tainted != 1 {
		t.Errorf("%d repelling, want what a readable record doesn't claim not to count", use.Tainted)
	}
}

func TestANodeThatNoLongerMatchesLeavesTheQueue(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.decide("w01")
	m.decide("w02")
	m.see("w01", kubeletWell)
	m.settle("w01")
	sum, _ := m.fleet.Summary("a-uid", moment(noon))
	if sum.HeldBack != 1 || sum.Holds["LimitReached"].Nodes != 1 {
		t.Errorf("%d held back (%v), want only the node that still matches", sum.HeldBack, sum.Holds)
	}
	m.see("w00", kubeletWell)
	m.settle("w00")
	if !m.settle("w02") {
		t.Error("the node that left the queue still stands before another")
	}
}

func TestANodeThatIsGoneIsNotHeldBack(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.settle("w00")
	m.decide("w01")
	m.fleet.ForgetNode("w01", "w01-uid", moment(noon))
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.HeldBack != 0 || sum.Matching != 9 || sum.Selected != 9 {
		t.Errorf("summary %+v, want nobody held back, 9 matching and selected", sum)
	}
}

func TestTheOwnCap(t *testing.T) {
	tests := []struct {
		name, maxNodes string
		want           int
	}{
		{"a number", "2", 2}, {"a percentage of the selected nodes", "30%", 3}, {"nothing", "0", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nodes := append(workers(10, kubeletSick, labelled("pool", "a")), renamed("other", workers(30, kubeletSick))...)
			set := newSet(t, "a", "maxNodes: "+tt.maxNodes+"\nnodeSelector: {matchLabels: {pool: a}}\n"+noSchedule)
			m := manage(t, calm("100%", "100%"), nodes, set)
			for _, name := range m.fleet.Nodes() {
				m.settle(name)
			}
			if got := m.tainted("example.com/k"); len(got) != tt.want {
				t.Errorf("%d tainted, want %d", len(got), tt.want)
			}
			if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Holds["MaxNodesReached"].Nodes != 10-tt.want {
				t.Errorf("held %v, want %d by the own cap", sum.Holds, 10-tt.want)
			}
		})
	}
}

func TestANodesForgedClaimDoesNotStandInItsWay(t *testing.T) {
	forged := owning("a", "corp.example/x", "NoExecute", ago(time.Hour))
	worker := manage(t, calm("1", "1"), append(workers(10), newNode("n", kubeletSick, forged)), newSet(t, "a", noSchedule))
	worker.settle("n")
	if got := worker.tainted("example.com/k"); len(got) != 1 {
		t.Error("a worker waits behind its own forged claim")
	}
	plane := manage(t, calm("10", "10"), append(workers(10), newNode("n", controlPlane, kubeletSick, forged)), newSet(t, "a", "includeControlPlane: true\n"+noSchedule))
	plane.settle("n")
	if got := plane.tainted("example.com/k"); len(got) != 1 {
		t.Error("a control-plane node waits behind its own forged claim")
	}
}

func TestAnOwnCapThatIsFreedWakesTheQueue(t *testing.T) {
	prefer := newSet(t, "p", "maxNodes: 1\neffect: PreferNoSchedule\ntaintKey: example.com/p\nconditions: {NTPProblem: {status: true}}")
	ntp := reports("NTPProblem", "True", ago(time.Hour))
	m := manage(t, calm("5", "5"), workers(10, kubeletSick, ntp), newSet(t, "a", noSchedule), prefer)
	m.settle("w00")
	m.settle("w01") // only the first set's taint: the second's cap is used up
	m.see("w00", reports("NTPProblem", "False", noon))
	plan, _ := m.decide("w00")
	n, err := m.api.patch(plan)
	if err != nil {
		t.Fatal(err)
	}
	m.fleet.Written("w00", n.ResourceVersion)
	if wake := m.woken(func() { m.fleet.ObserveNode(n, moment(noon)) }); !slices.Contains(wake, "w01") {
		t.Errorf("wakes %v, want the node that waits for the set's own cap", wake)
	}
}

func TestOneNodeOfAZoneBeginsToEvictAtATime(t *testing.T) {
	nodes := append(renamed("a", workers(20, kernelSick, inZone("a"))), renamed("b", workers(20, kernelSick, inZone("b")))...)
	m := manage(t, calm("100%", "100%"), nodes, newSet(t, "a", noExecute))
	evicting := func() (names []string) {
		for _, name := range m.fleet.Nodes() {
			for _, taint := range m.api.nodes[name].Spec.Taints {
				if taint.Effect == "NoExecute" {
					names = append(names, name)
				}
			}
		}
		return names
	}
	all := func() {
		for _, name := range m.fleet.Nodes() {
			m.settle(name)
		}
	}
	all()
	if got := evicting(); !slices.Equal(got, []string{"aw00", "bw00"}) {
		t.Errorf("evicting %v, want one in each zone", got)
	}
	if got := m.tainted("example.com/k"); len(got) != 40 {
		t.Errorf("%d tainted, want all: the others stay at NoSchedule", len(got))
	}
	plan, _ := m.decide("aw01")
	if plan.Holds[0].Reason != "EvictionPace" || !plan.RequeueAt.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("holds %v, looks again at %s; want the pace, in five minutes", plan.Holds, plan.RequeueAt)
	}
	m.now = noon.Add(5*time.Minute - time.Second)
	all()
	if got := len(evicting()); got != 2 {
		t.Errorf("%d evict a second early", got)
	}
	m.now = noon.Add(5 * time.Minute)
	all()
	if got := evicting(); !slices.Equal(got, []string{"aw00", "aw01", "bw00", "bw01"}) {
		t.Errorf("evicting %v after five minutes, want two in each zone", got)
	}
}

func TestThePaceOutlivesTheTaintAndARestart(t *testing.T) {
	m := manage(t, calm("100%", "100%"), workers(20, kernelSick), newSet(t, "a", noExecute))
	m.settle("w00")
	m.now = noon.Add(time.Minute)
	m.see("w00", kernelWell)
	m.settle("w00")
	var nodes []*corev1.Node
	for _, n := range m.api.nodes {
		nodes = append(nodes, n)
	}
	again := manage(t, calm("100%", "100%"), nodes, newSet(t, "a", noExecute))
	again.now = m.now
	plan, _ := again.decide("w01")
	if len(plan.Holds) != 1 || plan.Holds[0].Reason != "EvictionPace" {
		t.Errorf("holds %v a minute after an eviction that is over, want the pace", plan.Holds)
	}
}

func TestAnEvictionTimeFarAheadDoesNotStopTheZone(t *testing.T) {
	nodes := workers(20, kernelSick)
	recorded(`{"history":[{"set":"x","at":"2026-11-03T11:00:00Z","evicted":"2099-01-01T00:00:00Z"}]}`)(nodes[7])
	m := manage(t, calm("100%", "100%"), nodes, newSet(t, "a", noExecute))
	if plan, _ := m.decide("w00"); len(plan.Taints) != 1 || plan.Taints[0].Effect != "NoExecute" {
		t.Errorf("taints %v, holds %v", plan.Taints, plan.Holds)
	}
}

func TestOneControlPlaneNodeAtATime(t *testing.T) {
	nodes := workers(30)
	for i := range 3 {
		nodes = append(nodes, newNode(fmt.Sprintf("cp%d", i), controlPlane, kubeletSick))
	}
	m := manage(t, calm("10%", "5%"), nodes, newSet(t, "a", "includeControlPlane: true\n"+noSchedule))
	for _, name := range m.fleet.Nodes() {
		m.settle(name)
	}
	if got := m.tainted("example.com/k"); !slices.Equal(got, []string{"cp0"}) {
		t.Fatalf("tainted %v, want one", got)
	}
	if sum, _ := m.fleet.Summary("a-uid", moment(noon)); sum.Holds["OtherControlPlaneNodeTainted"].Nodes != 2 {
		t.Errorf("held %v, want two behind the first", sum.Holds)
	}
	m.see("cp0", kubeletWell)
	m.settle("cp0")
	m.settle("cp2")
	m.settle("cp1")
	if got := m.tainted("example.com/k"); !slices.Equal(got, []string{"cp1"}) {
		t.Errorf("tainted %v, want the next in the queue", got)
	}
}

func TestTheFleetCountsForMetrics(t *testing.T) {
	m := manage(t, calm("10", "10"), append(workers(10, kernelSick), newNode("p", reports("NTPProblem", "True", ago(time.Hour)))),
		newSet(t, "a", noExecute), newSet(t, "p", "effect: PreferNoSchedule\ntaintKey: example.com/p\nconditions: {NTPProblem: {status: true}}"))
	m.settle("w00")
	m.settle("w01") // NoSchedule, by the pace
	m.settle("p")   // free
	if use := m.fleet.Usage(); use.Tainted != 2 || use.Evicting != 1 || use.Total != 11 {
		t.Errorf("%d repelling, %d evicting of %d; want 2, 1 of 11", use.Tainted, use.Evicting, use.Total)
	}
}

func TestAHoldTellsWhichLimitOverAllSetsHolds(t *testing.T) {
	for name, c := range map[string]struct {
		tainted, evicting string
		want              condition.Reason
	}{
		"tainted nodes":  {"1", "1", "LimitReached"},
		"evicting nodes": {"10", "1", "EvictLimitReached"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manage(t, calm(c.tainted, c.evicting), workers(10, kernelSick), newSet(t, "a", noExecute))
			m.settle("w00")
			m.settle("w01")
			sum, _ := m.fleet.Summary("a-uid", moment(noon))
			if got := sum.Holds[c.want]; got.Nodes != 1 || len(sum.Holds) != 1 {
				t.Errorf("holds are %v, want one by %s", sum.Holds, c.want)
			}
		})
	}
}
