package oracle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// yard is a world with a Service etcd behind which stands a pod, in a namespace whose default account may delete pods. There
// are no controllers: pods come and go by the test's hand, and stay unscheduled, so that a deletion is over at once.
type yard struct{ *world }

func newYard(w *world) yard {
	for _, args := range [][]string{
		{"apply", "-f", "../../crds/autohealer.resourcestack.com_weederconfigs.yaml", "-f", "../../crds/autohealer.resourcestack.com_guardrails.yaml"},
		{"wait", "--for=condition=Established", "crd/weederconfigs.autohealer.resourcestack.com", "crd/guardrails.autohealer.resourcestack.com"},
		{"create", "service", "clusterip", "etcd", "--clusterip=None"},
		{"create", "role", "weeder", "--verb=delete", "--resource=pods"},
		{"create", "role", "evictor", "--verb=create", "--resource=pods/eviction"},
		{"create", "rolebinding", "evictor", "--role=evictor", "--serviceaccount=default:default"},
	} {
		if _, err := w.cluster.Kubectl(w.Context(), args...); err != nil {
			w.Fatal(err)
		}
	}
	y := yard{w}
	y.entitle()
	return y
}

// must does something by kubectl as the admin.
func (y yard) must(args ...string) {
	y.Helper()
	if _, err := y.cluster.Kubectl(y.Context(), args...); err != nil {
		y.Fatal(err)
	}
}

func (y yard) entitle() {
	y.Helper()
	y.must("create", "rolebinding", "weeder", "--role=weeder", "--serviceaccount=default:default")
}

func (y yard) configs(namespace string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(y.cluster.Config).Resource(WeederConfigs{}.Policies()).Namespace(namespace)
}

// config is one that deletes the pods of app api when etcd recovers.
type config struct {
	namespace, name string
	uid             types.UID
}

func (y yard) config(more string) config { y.Helper(); return y.configIn("default", "c", more) }

func (y yard) configIn(namespace, name, more string) config {
	y.Helper()
	text := fmt.Sprintf(`{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"WeederConfig","metadata":{"name":%q},
		"spec":{"servicesAndDependantSelectors":{"etcd":{"podSelectors":[{"matchLabels":{"app":"api"}}]}}%s}}`, name, more)
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		y.Fatal(err)
	}
	created, err := y.configs(namespace).Create(y.Context(), object, metav1.CreateOptions{})
	if err != nil {
		y.Fatal(err)
	}
	return config{namespace, name, created.GetUID()}
}

func (y yard) edit(c config, patch string, subresources ...string) {
	y.Helper()
	if _, err := y.configs(c.namespace).Patch(y.Context(), c.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		y.Fatal(err)
	}
}

// accepts writes what the rules say of a config into its status.
func (y yard) accepts(c config, status metav1.ConditionStatus) {
	y.Helper()
	y.edit(c, fmt.Sprintf(`{"status":{"conditions":[{"type":"Accepted","status":%q,"reason":"R","message":"","observedGeneration":1,
		"lastTransitionTime":"2026-11-21T03:00:00Z"}]}}`, status), "status")
}

// turn makes the Service Ready or notReady.
func (y yard) turn(ready bool) {
	y.Helper()
	y.slice("etcd", discoveryv1.Endpoint{
		Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "etcd-0"},
	})
}

// slice writes a slice of the Service.
func (y yard) slice(name string, endpoints ...discoveryv1.Endpoint) {
	y.Helper()
	slices := y.admin.DiscoveryV1().EndpointSlices("default")
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "etcd"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
	_, err := slices.Update(y.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(y.Context(), s, metav1.CreateOptions{})
	}
	if err != nil {
		y.Fatal(err)
	}
}

func (y yard) recover() { y.Helper(); y.turn(false); y.turn(true) }

// looping creates a pod of app api, of ReplicaSet api, that crash-loops.
func (y yard) looping(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	y.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "api"}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "api", UID: "4e1d", Controller: ptr.To(true)},
		}},
		Spec: corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
		}},
	}
	for _, change := range changes {
		change(pod)
	}
	status := pod.Status
	created, err := y.admin.CoreV1().Pods(pod.Namespace).Create(y.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		y.Fatal(err)
	}
	created.Status = status
	return y.become(created)
}

// become gives a pod the status that it has here.
func (y yard) become(pod *corev1.Pod) *corev1.Pod {
	y.Helper()
	stored, err := y.admin.CoreV1().Pods(pod.Namespace).UpdateStatus(y.Context(), pod, metav1.UpdateOptions{})
	if err != nil {
		y.Fatal(err)
	}
	return stored
}

// note writes into a config's status that pods are deleted for etcd, of so many in all.
func (y yard) note(c config, counted int, pods ...*corev1.Pod) {
	y.Helper()
	recent := []map[string]any{}
	for _, p := range pods {
		recent = append(recent, map[string]any{
			"time": "2026-11-21T03:00:00Z", "namespace": p.Namespace, "pod": p.Name, "podUID": p.UID, "owner": "ReplicaSet/api", "service": "etcd",
		})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"deleted": counted, "recentDeletions": recent}})
	if err != nil {
		y.Fatal(err)
	}
	y.edit(c, string(patch), "status")
}

// guardrail creates a Guardrail.
func (y yard) guardrail(name, spec string) {
	y.Helper()
	text := `{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"Guardrail","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	if _, err := y.cluster.KubectlWithInput(y.Context(), strings.NewReader(text), "create", "-f", "-"); err != nil {
		y.Fatal(err)
	}
}

func same(p *corev1.Pod) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}}
}

// remove deletes a pod as the manager does.
func (y yard) remove(p *corev1.Pod) { y.Helper(); y.removeBy(p, same(p)) }

func (y yard) removeBy(p *corev1.Pod, options metav1.DeleteOptions) {
	y.Helper()
	if err := y.manager.CoreV1().Pods(p.Namespace).Delete(y.Context(), p.Name, options); err != nil {
		y.Fatal(err)
	}
}

func (y yard) evict(p *corev1.Pod) { y.Helper(); y.evictBy(p, same(p)) }

func (y yard) evictBy(p *corev1.Pod, options metav1.DeleteOptions) {
	y.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &options}
	if err := y.manager.CoreV1().Pods(p.Namespace).EvictV1(y.Context(), eviction); err != nil {
		y.Fatal(err)
	}
}

// weed notes pods and deletes them.
func (y yard) weed(c config, pods ...*corev1.Pod) {
	y.Helper()
	y.note(c, len(pods), pods...)
	for _, p := range pods {
		y.remove(p)
	}
}

// clean makes the yard as it was, by the admin's hand.
func (y yard) clean() {
	y.Helper()
	for _, namespace := range []string{"default", "autohealer-system"} {
		if err := y.configs(namespace).DeleteCollection(y.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			y.Fatal(err)
		}
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
		if err := y.admin.CoreV1().Pods(namespace).DeleteCollection(y.Context(), now, metav1.ListOptions{}); err != nil {
			y.Fatal(err)
		}
	}
	y.must("delete", "guardrails,endpointslices", "--all")
	y.must("patch", "service", "etcd", "--type=merge", "-p", `{"spec":{"selector":null}}`)
}

// A weederCase is what the manager does, and which invariants that breaks, in order.
type weederCase struct {
	name    string
	options Options
	do      func(yard)
	broken  []Invariant
	text    string // part of the first violation's text
}

func TestTheOracleFindsWhatABrokenManagerDoesToPods(t *testing.T) {
	y := newYard(newWorld(t))
	for _, tests := range [][]weederCase{correctWeeding, neverDeleted, unfoundedWeeding, unlimitedWeeding} {
		for _, test := range tests {
			test.options.Kinds = []Kind{WeederConfigs{}}
			test.options.Guardrails = true
			t.Run(test.name, func(t *testing.T) {
				y.run(t, testCase{name: test.name, options: test.options, broken: test.broken, text: test.text, do: func(w *world) {
					here := yard{w}
					defer here.clean()
					test.do(here)
				}})
			})
		}
	}
}
