package condition_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// benchFleet has nodes with the conditions of a kubelet and of node-problem-detector, one in a hundred of them sick, and
// fifty sets over those conditions.
func benchFleet(b *testing.B, size int) (*condition.Fleet, []*corev1.Node) {
	b.Helper()
	f := condition.NewFleet(limit.Builtin())
	nodes := make([]*corev1.Node, size)
	for i := range nodes {
		nodes[i] = newNode(fmt.Sprintf("node-%05d", i), inZone(worldZones[i%3]), labelled("pool", fmt.Sprint(i%5)))
		for _, k := range ecosystem.Types() {
			status := string(k.Healthy)
			if i%100 == 7 && k.Type == "KubeletUnhealthy" {
				status = "True"
			}
			reports(k.Type, status, ago(time.Hour))(nodes[i])
		}
		f.ObserveNode(nodes[i], moment(noon))
	}
	for i := range 50 {
		types := ecosystem.Types()
		spec := fmt.Sprintf("effect: NoSchedule\ntaintKey: example.com/k%d\nconditions: {%s: {status: unknown}, %s: {status: true}}", i, types[i%len(types)].Type, types[(i+1+i/len(types))%len(types)].Type)
		f.ObserveSet(newSet(b, fmt.Sprintf("s%02d", i), spec), lifecycle.Active, nil, "", moment(noon))
	}
	f.ObserveSet(newSet(b, "kubelet", noSchedule), lifecycle.Active, nil, "", moment(noon))
	f.MarkSynced(moment(noon))
	return f, nodes
}

// BenchmarkObserveNode is a heartbeat that changes nothing.
func BenchmarkObserveNode(b *testing.B) {
	f, nodes := benchFleet(b, 5000)
	beats := make([]*corev1.Node, len(nodes))
	for i, n := range nodes {
		beats[i] = n.DeepCopy()
		for c := range beats[i].Status.Conditions {
			beats[i].Status.Conditions[c].LastHeartbeatTime = metav1.NewTime(noon.Add(10 * time.Second))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		of := nodes
		if i/len(nodes)%2 == 0 {
			of = beats
		}
		f.ObserveNode(of[i%len(nodes)], moment(noon))
	}
}

// BenchmarkObserveFlip is a condition that changes.
func BenchmarkObserveFlip(b *testing.B) {
	f, nodes := benchFleet(b, 5000)
	sick := make([]*corev1.Node, len(nodes))
	for i, n := range nodes {
		sick[i] = n.DeepCopy()
		reports("KernelDeadlock", "True", noon)(sick[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		of := nodes
		if i/500%2 == 0 {
			of = sick
		}
		f.ObserveNode(of[i%500], moment(noon))
	}
}

// BenchmarkDecide plans a node with nothing to do.
func BenchmarkDecide(b *testing.B) {
	f, nodes := benchFleet(b, 5000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, next := f.Decide(nodes[i%100].Name, moment(noon), nil); next == condition.Write {
			f.Failed(nodes[i%100].Name)
		}
	}
}

// BenchmarkDecideHeld plans nodes while a thousand wait for room.
func BenchmarkDecideHeld(b *testing.B) {
	_, nodes := benchFleet(b, 5000)
	held := condition.NewFleet(calm("10%", "5%"))
	for _, n := range nodes {
		sick := n.DeepCopy()
		reports("KubeletUnhealthy", "True", ago(time.Minute))(sick)
		held.ObserveNode(sick, moment(noon))
	}
	held.ObserveSet(newSet(b, "kubelet", noSchedule), lifecycle.Active, nil, "", moment(noon))
	held.MarkSynced(moment(noon))
	for _, n := range nodes[:1600] {
		held.Decide(n.Name, moment(noon), nil)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		held.Decide(nodes[600+i%1000].Name, moment(noon), nil)
	}
}

func BenchmarkForecast(b *testing.B) {
	for _, size := range []int{10, 5000} {
		f, _ := benchFleet(b, size)
		for _, bb := range []struct{ name, spec string }{
			{"plain", noSchedule},
			{"selector", "nodeSelector: {matchLabels: {pool: \"3\"}}\n" + noSchedule},
			{"notIn", "nodeSelector: {matchExpressions: [{key: pool, operator: NotIn, values: [\"3\", \"4\"]}]}\n" + noSchedule},
			{"controlPlane", "includeControlPlane: true\n" + noSchedule},
			{"allMatch", "effect: NoSchedule\ntaintKey: example.com/k\nconditions: {Ready: {status: true}}"},
		} {
			cs := newConditionSet(b, "new", bb.spec)
			b.Run(fmt.Sprintf("%s/%d", bb.name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if f.Forecast(cs, limit.Builtin(), moment(noon)).Nodes == 0 {
						b.Fatal("no nodes")
					}
				}
			})
		}
	}
}

// BenchmarkForecastAmongSets forecasts beside sets of every sort: alike, with shared keys and types, capped, tainting much.
func BenchmarkForecastAmongSets(b *testing.B) {
	for _, stored := range []int{10, 10000} {
		f := fleetOfSets(b, 1000, stored)
		for _, bb := range []struct{ name, spec string }{
			{"plain", noSchedule},
			{"four", "effect: NoSchedule\ntaintKey: example.com/k3\nconditions: {KubeletUnhealthy: {status: true}, KernelDeadlock: {status: true}, NTPProblem: {status: true}, DiskPressure: {status: true}}"},
			{"stored", "type: Shared\neffect: NoSchedule\ntaintKey: example.com/k7\nconditions: {Ready: {status: true}}"},
		} {
			cs := newConditionSet(b, "x00007", bb.spec)
			b.Run(fmt.Sprintf("%s/%d", bb.name, stored), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if f.Forecast(cs, limit.Builtin(), moment(noon)).Nodes == 0 {
						b.Fatal("no nodes")
					}
				}
			})
		}
	}
}

func fleetOfSets(b *testing.B, nodes, sets int) *condition.Fleet {
	b.Helper()
	f, _ := benchFleet(b, nodes)
	types := ecosystem.Types()
	for i := range sets {
		spec := fmt.Sprintf("effect: NoSchedule\ntaintKey: example.com/k%d\nconditions: {%s: {status: true}, Custom%d: {status: true}}", i%100, types[i%len(types)].Type, i)
		switch i % 10 {
		case 7: // matches everywhere
			spec = fmt.Sprintf("type: Shared\neffect: NoSchedule\ntaintKey: example.com/k%d\nconditions: {Ready: {status: true}}", i%100)
		case 8:
			spec = "maxNodes: 10%\neffect: NoSchedule\ntaintKey: example.com/k\nconditions: {KubeletUnhealthy: {status: true}}"
		}
		f.ObserveSet(newSet(b, fmt.Sprintf("x%05d", i), spec), lifecycle.Active, nil, "", moment(noon))
	}
	return f
}

// BenchmarkNodeAmongSets is a condition that flips, and the plan for it, beside sets that the node doesn't concern.
func BenchmarkNodeAmongSets(b *testing.B) {
	for _, stored := range []int{10, 10000} {
		f, nodes := benchFleet(b, 100)
		for i := range stored {
			f.ObserveSet(newSet(b, fmt.Sprintf("x%05d", i), fmt.Sprintf("effect: NoSchedule\ntaintKey: example.com/k\nconditions: {Custom%d: {status: true}}", i)),
				lifecycle.Active, nil, "", moment(noon))
		}
		var flips [2]*corev1.Node
		for i, status := range []string{"True", "False"} {
			flips[i] = nodes[0].DeepCopy()
			reports("KernelDeadlock", status, noon)(flips[i])
		}
		b.Run(fmt.Sprint(stored), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f.ObserveNode(flips[i%2], moment(noon))
				if _, next := f.Decide(flips[i%2].Name, moment(noon), nil); next == condition.Write {
					f.Failed(flips[i%2].Name)
				}
			}
		})
	}
}

func BenchmarkSummary(b *testing.B) {
	f, _ := benchFleet(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		f.Summary("kubelet-uid", moment(noon))
	}
}
