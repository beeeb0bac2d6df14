package weeder_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// realPod is as large as pods are: two containers with environment and probes, managed fields, labels of a Helm chart.
func realPod(i int, options ...podOption) *corev1.Pod {
	name := fmt.Sprintf("app%03d-6d4cf56db6-%05d", i%100, i)
	p := newPod(name, in("shop"), owned("ReplicaSet", fmt.Sprintf("app%03d-6d4cf56db6", i%100)))
	p.UID = p.UID + "-8c1d6b1e-6a4f-4c7e-9d1e"
	for _, l := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart"} {
		p.Labels[l] = fmt.Sprintf("value-%d", i%100)
	}
	p.Labels["pod-template-hash"] = "6d4cf56db6"
	p.Labels["app"] = fmt.Sprintf("app%03d", i%100)
	p.Annotations = map[string]string{"checksum/config": fmt.Sprintf("%064d", i), "prometheus.io/scrape": "true"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}` + strings.Repeat(" ", 2000))}}
	p.Spec.Containers = nil
	p.Status.ContainerStatuses = nil
	for _, c := range []string{"main", "proxy"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "registry.example.com/" + c, Env: make([]corev1.EnvVar, 20), VolumeMounts: make([]corev1.VolumeMount, 4)})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c, ContainerID: fmt.Sprintf("containerd://%064d", i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	p.Spec.Volumes, p.Spec.Tolerations = make([]corev1.Volume, 5), make([]corev1.Toleration, 2)
	for _, o := range options {
		o(p)
	}
	if p.Status.Conditions == nil {
		readySince(-time.Hour)(p)
	}
	return p
}

const (
	benchPods     = 10_000
	benchServices = 100
	benchCrashing = 500
)

// benchState has 10,000 pods in one namespace, 500 of them crash-looping, and 100 Services, each with its dependents.
func benchState(b *testing.B) (*weeder.State, []*weeder.Pod) {
	b.Helper()
	limits := limit.Builtin()
	limits.MaxPodDeletionsPerMinute = 100_000
	y := weeder.NewState(limits, "autohealer-system")
	pods := make([]*weeder.Pod, benchPods)
	for i := range pods {
		p := realPod(i)
		if (i+i/100)%(benchPods/benchCrashing) == 0 { // spread over the apps
			backOff(p)
		}
		pods[i] = weeder.ReadPod(p)
		y.ObservePod(pods[i], at(-time.Hour))
	}
	for i := range benchServices {
		y.ObserveService(newService(fmt.Sprintf("svc%03d", i), selecting(fmt.Sprintf("app%03d", i))))
		benchSlice(y, i, true)
	}
	y.ObserveConfig(compiled(b, benchConfig(b)), lifecycle.Active, at(-time.Hour))
	y.MarkSynced(at(-time.Hour))
	return y, pods
}

// benchConfig has Service N's dependents in the five apps from N+1 on: it is one long chain.
func benchConfig(b *testing.B) *v1alpha1.WeederConfig {
	b.Helper()
	wc := newWeederConfig(b, "shop", "wc", "maxDeletionsPerWatch: 10000")
	wc.Spec.ServicesAndDependantSelectors = map[string]v1alpha1.DependantSelectors{}
	for i := range benchServices {
		r := v1alpha1.LabelSelectorRequirement{Key: "app", Operator: "In"}
		for d := range 5 {
			r.Values = append(r.Values, fmt.Sprintf("app%03d", i+1+d))
		}
		wc.Spec.ServicesAndDependantSelectors[fmt.Sprintf("svc%03d", i)] = v1alpha1.DependantSelectors{PodSelectors: []v1alpha1.LabelSelector{{
			MatchExpressions: []v1alpha1.LabelSelectorRequirement{r, {Key: "app.kubernetes.io/name", Operator: "Exists"}},
		}}}
	}
	return wc
}

func benchSlice(y *weeder.State, i int, ready bool) int {
	var endpoints []string
	for p := range 10 {
		name := fmt.Sprintf("app%03d-6d4cf56db6-%05d", i, i+p*100)
		if !ready {
			name += ":notready"
		}
		endpoints = append(endpoints, name)
	}
	s := newSlice(fmt.Sprintf("svc%03d-x", i), fmt.Sprintf("svc%03d", i), endpoints...)
	s.Namespace = "shop"
	return len(y.ObserveSlice(s, at(0)))
}

// BenchmarkRecovery is a Service's turn to notReady and back, with the look at who crash-loops.
func BenchmarkRecovery(b *testing.B) {
	y, _ := benchState(b)
	b.ReportAllocs()
	due := 0
	for i := 0; b.Loop(); i++ {
		benchSlice(y, i%benchServices, false)
		due += benchSlice(y, i%benchServices, true)
	}
	b.ReportMetric(float64(due)/float64(b.N), "due/op")
}

// BenchmarkObservePod is a kubelet's write while no window is open, of any of the pods.
func BenchmarkObservePod(b *testing.B) {
	y, pods := benchState(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		y.ObservePod(pods[i%benchPods], at(0))
	}
}

// BenchmarkReadPod is what the informer makes of it before.
func BenchmarkReadPod(b *testing.B) {
	p := realPod(1)
	b.ReportAllocs()
	for b.Loop() {
		weeder.ReadPod(p)
	}
}

// BenchmarkObservePodWindowsOpen is the same for a pod that crash-loops, while all hundred Services' windows are open.
func BenchmarkObservePodWindowsOpen(b *testing.B) {
	y, pods := benchState(b)
	for i := range benchServices {
		benchSlice(y, i, false)
		benchSlice(y, i, true)
	}
	crashing := slices.DeleteFunc(pods, func(p *weeder.Pod) bool { return p.Main.Container == "" })
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		y.ObservePod(crashing[i%len(crashing)], at(0))
	}
}

// BenchmarkDecide is a deletion from the decision to its confirmation or failure.
func BenchmarkDecide(b *testing.B) {
	for _, open := range []int{1, benchServices} {
		b.Run(fmt.Sprintf("%dWindows", open), func(b *testing.B) {
			y, _ := benchState(b)
			for i := range open {
				benchSlice(y, i, false)
				benchSlice(y, i, true)
			}
			due := y.Due(at(0))
			if len(due) == 0 {
				b.Fatal("nothing is due")
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := due[i%len(due)]
				plan, next := decideOn(y, k, at(second), "")
				if next != weeder.Delete {
					b.Fatalf("%s: %s", k, verdict(plan, next))
				}
				y.Failed(plan.Pod.UID)
			}
		})
	}
}

// BenchmarkDrain is the decisions on all pods of one workload, each with its confirmation.
func BenchmarkDrain(b *testing.B) {
	for _, pods := range []int{20, 2000} {
		b.Run(fmt.Sprintf("%dPods", pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				limits := limit.Builtin()
				limits.MaxPodDeletionsPerMinute = 100_000
				y := watchingEtcd(b, etcdForAPI+"maxDeletionsPerWatch: 10000")
				y.SetLimits(limits)
				for i := range pods {
					y.ObservePod(weeder.ReadPod(newPod(fmt.Sprintf("api-%d", i), backOff)), at(-time.Minute))
				}
				due := recoverEtcd(y, 0)
				b.StartTimer()
				for i, k := range due {
					now := at(time.Duration(i) * time.Millisecond)
					plan, next := decideOn(y, k, now, "")
					if next != weeder.Delete {
						b.Fatalf("%s: %s", k, verdict(plan, next))
					}
					y.Confirm(plan.Pod.UID, now)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}

func BenchmarkForecast(b *testing.B) {
	y, _ := benchState(b)
	large := benchConfig(b)
	small := large.DeepCopy()
	small.Name = "small"
	maps.DeleteFunc(small.Spec.ServicesAndDependantSelectors, func(name string, _ v1alpha1.DependantSelectors) bool { return name > "svc001" })
	for name, wc := range map[string]*v1alpha1.WeederConfig{"2Services": small, "100Services": large} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if y.Forecast(wc, limit.Builtin(), at(0)).SelectedPods == 0 {
					b.Fatal("no pods")
				}
			}
		})
	}
}

// No pod may cost more than 2 KiB, in the informer's store and in the state together: they share it.
func TestMemoryPerPod(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	y := newState()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for i := range benchPods {
		p := realPod(i)
		if i%20 == 0 {
			backOff(p)
		}
		text, err := json.Marshal(p) // every string of its own, as decoded
		if err != nil {
			t.Fatal(err)
		}
		decoded := &corev1.Pod{}
		if err := json.Unmarshal(text, decoded); err != nil {
			t.Fatal(err)
		}
		read := weeder.ReadPod(decoded)
		if err := store.Add(read); err != nil {
			t.Fatal(err)
		}
		y.ObservePod(read, at(0))
	}
	perPod := (heap() - before) / benchPods
	t.Logf("%d bytes a pod", perPod)
	if perPod > 2048 {
		t.Errorf("%d bytes a pod, at most 2048 wanted", perPod)
	}
	runtime.KeepAlive(store)
	runtime.KeepAlive(y)
}

// The informer's goroutine does this at each of a kubelet's writes.
func TestAPodsEventAllocatesNothingWhileNoWindowIsOpen(t *testing.T) {
	y := watchingEtcd(t, etcdForAPI)
	for _, p := range []*weeder.Pod{weeder.ReadPod(newPod("api-1", running)), weeder.ReadPod(newPod("api-2", backOff))} {
		y.ObservePod(p, at(0))
		if allocs := testing.AllocsPerRun(100, func() { y.ObservePod(p, at(0)) }); allocs != 0 {
			t.Errorf("%s: %v allocations", p.Name, allocs)
		}
	}
}

// BenchmarkSummary is of a config that holds nobody back, while ten thousand pods of another namespace crash-loop.
func BenchmarkSummary(b *testing.B) {
	y := watchingEtcd(b, etcdForAPI)
	for i := range benchPods {
		y.ObservePod(weeder.ReadPod(realPod(i, backOff)), at(0))
	}
	b.ReportAllocs()
	for b.Loop() {
		if sum, _ := y.Summary("wc-uid", at(0)); len(sum.Held) > 0 {
			b.Fatal("somebody is held")
		}
	}
}
