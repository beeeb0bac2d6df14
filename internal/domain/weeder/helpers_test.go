package weeder_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// noon is the beginning of all tests.
var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// at is so long after noon, by our clock and the API server's.
func at(d time.Duration) timing.Moment {
	return timing.Moment{Now: noon.Add(d), Server: noon.Add(d)}
}

const second = time.Second

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func names(keys []types.NamespacedName) string {
	var all []string
	for _, k := range keys {
		all = append(all, k.Name)
	}
	return strings.Join(all, " ")
}

type podOption func(*corev1.Pod)

var versions int

// nextVersion is a resource version later than all before.
func nextVersion() string {
	versions++
	return strconv.Itoa(versions)
}

// newPod runs in namespace ns, has the label app with its name up to the first -, is owned by a ReplicaSet of that name
// and was created an hour before noon.
func newPod(name string, options ...podOption) *corev1.Pod {
	app, _, _ := strings.Cut(name, "-")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: nextVersion(),
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Labels: map[string]string{"app": app},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}},
	}
	owned("ReplicaSet", app)(p)
	for _, o := range options {
		o(p)
	}
	return p
}

func owned(kind, name string) podOption {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: &yes}}
	}
}

func ownerless(p *corev1.Pod) { p.OwnerReferences = nil }

func labelled(key, value string) podOption {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func heldUntil(until string) podOption {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{"autohealer.resourcestack.com/hold-until": until}
	}
}

func in(namespace string) podOption {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

func uid(uid string) podOption {
	return func(p *corev1.Pod) { p.UID = types.UID(uid) }
}

func created(d time.Duration) podOption {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(d)) }
}

func terminating(p *corev1.Pod) {
	now := metav1.NewTime(noon)
	p.DeletionTimestamp = &now
}

func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.mirror": "abc"}
	owned("Node", "n1")(p)
}

// backOff is how the kubelet of 1.36 shows a back-off but for its last seconds: the last exit, and the one before.
func backOff(p *corev1.Pod) {
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", RestartCount: 4, State: exited(1), LastTerminationState: exited(1)}
}

// waiting is how it shows the last seconds.
func waiting(p *corev1.Pod) {
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", RestartCount: 4, State: crashLoop(), LastTerminationState: exited(1)}
}

func running(p *corev1.Pod) {
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", RestartCount: 5, LastTerminationState: exited(1),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

// restartedAfter runs again after a first run of that length.
func restartedAfter(run time.Duration) podOption {
	return func(p *corev1.Pod) {
		first := exited(1)
		first.Terminated.StartedAt, first.Terminated.FinishedAt = metav1.NewTime(noon), metav1.NewTime(noon.Add(run))
		p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "main", RestartCount: 1, LastTerminationState: first,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	}
}

func exited(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
}

func crashLoop() corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
}

// readySince has the pod Ready since so long after noon.
func readySince(d time.Duration) podOption { return readiness("True", d) }

func readiness(status string, d time.Duration) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: "Ready", Status: corev1.ConditionStatus(status), LastTransitionTime: metav1.NewTime(noon.Add(d))}}
	}
}

func newNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// newSlice is an EndpointSlice of a Service with endpoints as "pod", "pod:notready" or "pod:terminating".
func newSlice(name, service string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"kubernetes.io/service-name": service}}}
	for _, e := range endpoints {
		pod, state, _ := strings.Cut(e, ":")
		ready, serving, ends := state == "", state != "notready", state == "terminating"
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &ends},
		})
	}
	return s
}

// etcdForAPI is a spec by which pods with app=api depend on Service etcd.
const etcdForAPI = `
watchDuration: 2m
servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}
`

// failer is a test, a benchmark or a rapid check.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newWeederConfig(t failer, namespace, name, spec string) *v1alpha1.WeederConfig {
	t.Helper()
	wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name + "-uid"), Generation: 1, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	if err := yaml.UnmarshalStrict([]byte(spec), &wc.Spec); err != nil {
		t.Fatalf("spec of %s: %v", name, err)
	}
	return wc
}

func newConfig(t testing.TB, name, spec string) *weeder.Config {
	t.Helper()
	return compiled(t, newWeederConfig(t, "ns", name, spec))
}

func compiled(t testing.TB, wc *v1alpha1.WeederConfig) *weeder.Config {
	t.Helper()
	c, err := weeder.NewConfig(wc, "autohealer-system")
	if err != nil {
		t.Fatalf("config %s: %v", wc.Name, err)
	}
	return c
}

func newState() *weeder.State { return weeder.NewState(limit.Builtin(), "autohealer-system") }

// watchingEtcd is a state with an admitted config wc of this spec, and Service etcd down since before noon.
func watchingEtcd(t testing.TB, spec string, pods ...*corev1.Pod) *weeder.State {
	t.Helper()
	y := newState()
	for _, p := range pods {
		y.ObservePod(weeder.ReadPod(p), at(-time.Minute))
	}
	y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), at(-time.Minute))
	y.ObserveConfig(newConfig(t, "wc", spec), lifecycle.Active, at(-time.Minute))
	if due := y.MarkSynced(at(-time.Minute)); len(due) > 0 {
		t.Fatalf("%s due before anything recovered", names(due))
	}
	return y
}

// recoverEtcd lets Service etcd turn Ready, and its pod first.
func recoverEtcd(y *weeder.State, d time.Duration) []types.NamespacedName {
	y.ObservePod(weeder.ReadPod(newPod("etcd-0", readySince(d))), at(d))
	return seeEtcdReady(y, d)
}

// seeEtcdReady tells that Service etcd is Ready.
func seeEtcdReady(y *weeder.State, d time.Duration) []types.NamespacedName {
	return y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0"), at(d))
}

func failEtcd(y *weeder.State, d time.Duration) []types.NamespacedName {
	return y.ObserveSlice(newSlice("etcd-1", "etcd", "etcd-0:notready"), at(d))
}

// verdict is a decision in short: "delete", "delete again", "read live", "" or what holds the pod back.
func verdict(plan weeder.Plan, next weeder.Next) string {
	switch {
	case next == weeder.ReadLive:
		return "read live"
	case next == weeder.Delete && len(plan.Delete.Before) > 0:
		return "delete again"
	case next == weeder.Delete:
		return "delete"
	}
	var reasons []string
	for _, h := range plan.Holds {
		reasons = append(reasons, string(h.Reason))
	}
	return strings.Join(reasons, ",")
}

func decide(y *weeder.State, name string, d time.Duration) string {
	return verdict(decideOn(y, key(name), at(d), ""))
}

// decideOn decides for a process that leads: what others did is what the state was told.
func decideOn(y *weeder.State, pod types.NamespacedName, at timing.Moment, doubt string) (weeder.Plan, weeder.Next) {
	y.Claim(nil, at)
	return y.Decide(pod, at, doubt)
}

// deleted decides on a pod, which must be deleted, and lets it be gone.
func deleted(t testing.TB, y *weeder.State, name string, d time.Duration) {
	t.Helper()
	plan, next := decideOn(y, key(name), at(d), "")
	if next != weeder.Delete {
		t.Fatalf("%s at %s: %q instead of a deletion", name, d, verdict(plan, next))
	}
	y.Confirm(plan.Pod.UID, at(d))
	y.ForgetPod(key(name), plan.Pod.UID)
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func opened(y *weeder.State) (all []string) {
	for _, o := range y.DrainOpened() {
		all = append(all, fmt.Sprintf("%s/%s until +%s", o.Namespace, o.Service, o.Ends.Sub(noon)))
	}
	return all
}
