package weederconfig

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const ownNamespace = "autohealer-system"

// world is an observer with a clock that stands still, and what it told.
type world struct {
	*Observer
	clock *testingclock.FakeClock
	heard *recorder
	guard *guard.Guard
}

// Authorize lets nobody do anything: in Autohealer's own namespace nobody is asked.
func (*world) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: testingclock.NewFakeClock(noon), heard: &recorder{}}
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Weeder: weeder.NewState(limit.Builtin(), ownNamespace), Clock: w.clock, Server: &kube.ServerClock{Clock: w.clock},
	}
	var err error
	if w.guard, err = guard.New(guard.Options{Clock: w.clock, OwnNamespace: ownNamespace, Authorizer: w}); err != nil {
		t.Fatal(err)
	}
	w.Observer = NewObserver(nil, policy.Options{Guard: w.guard, Facts: facts, OwnNamespace: ownNamespace, Rejections: &kube.Rejections{}}, NewReporter(w.heard))
	return w
}

// event is what one tells.
type event struct{ on, related, reason, action, note string }

// recorder keeps Events. It is safe for concurrent use.
type recorder struct {
	mu  sync.Mutex
	all []event
}

func (r *recorder) Eventf(regarding, related runtime.Object, _, reason, action, _ string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note, _ := args[0].(string)
	r.all = append(r.all, event{nameOf(regarding), nameOf(related), reason, action, note})
}

func nameOf(object runtime.Object) string {
	o := object.(metav1.Object)
	return object.GetObjectKind().GroupVersionKind().Kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// stored is a config in Autohealer's own namespace, by which pods with app=api depend on Service etcd.
func stored(name string, change func(*v1alpha1.WeederConfigSpec)) *v1alpha1.WeederConfig {
	wc := &v1alpha1.WeederConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: name, UID: types.UID(name + "-uid"), Generation: 1, ResourceVersion: "1"},
		Spec: v1alpha1.WeederConfigSpec{ServicesAndDependantSelectors: map[string]v1alpha1.DependantSelectors{
			"etcd": {PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"app": "api"}}}},
		}},
	}
	if change != nil {
		change(&wc.Spec)
	}
	return wc
}

// observe stores a config for which nobody else acted, and has it judged.
func (w *world) observe(ctx context.Context, wc *v1alpha1.WeederConfig) {
	w.meet(ctx, wc)
	w.weeder().Claim(nil, w.Facts.Moment())
}

// meet stores a config and has it judged, while others may still act.
func (w *world) meet(ctx context.Context, wc *v1alpha1.WeederConfig) {
	w.policies.Seen(ctx, wc)
	w.policies.Judge(ctx, types.NamespacedName{Namespace: wc.Namespace, Name: wc.Name})
}

// recover lets Service etcd be down and turn Ready.
func (w *world) recover() {
	w.weeder().MarkSynced(w.Facts.Moment())
	w.slice(slice(false, "etcd-0"))
	w.pod(weeder.ReadPod(readyNow(ownNamespace, "etcd-0", w.clock.Now())))
	w.slice(slice(true, "etcd-0"))
}

func slice(ready bool, pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "etcd-1", Labels: map[string]string{discoveryv1.LabelServiceName: "etcd"}}}
	for _, pod := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ownNamespace, Name: pod},
		})
	}
	return s
}

// readyNow is a pod that turned Ready at a time.
func readyNow(namespace, name string, at time.Time) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "1"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}}},
	}
}

// crashing is a pod of Deployment api that crash-loops.
func crashing(name string) *corev1.Pod {
	yes := true
	exit := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ownNamespace, Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "1", Labels: map[string]string{"app": "api"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api", UID: "rs", Controller: &yes}},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", RestartCount: 4, State: exit, LastTerminationState: exit},
		}},
	}
}

// decided gives the plan for a pod, which must be its deletion.
func (w *world) decided(t *testing.T, pod *corev1.Pod) weeder.Plan {
	t.Helper()
	w.pod(weeder.ReadPod(pod))
	plan, next := w.weeder().Decide(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, w.Facts.Moment(), "")
	if next != weeder.Delete {
		t.Fatalf("%s isn't deleted: %+v", pod.Name, plan.Holds)
	}
	return plan
}
