package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// world is a cluster with 20 nodes in four zones: two of them may be tainted, one of them evict, one a zone. Two
// control-plane nodes don't count.
type world struct {
	*testing.T
	cluster *cluster.Cluster
	admin   kubernetes.Interface
	// manager is the broken one: it has the manager's name and every right.
	managerConfig *rest.Config
	manager       kubernetes.Interface
	sets          dynamic.ResourceInterface
	oracle        *Oracle
}

func newWorld(t *testing.T) *world {
	c, err := cluster.Start(t.Context(), cluster.Options{Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, args := range [][]string{
		{"apply", "-f", "../../crds/autohealer.resourcestack.com_conditionsets.yaml"},
		{"wait", "--for=condition=Established", "crd/conditionsets.autohealer.resourcestack.com"},
		{"create", "namespace", "autohealer-system"},
		{"create", "serviceaccount", "-n", "autohealer-system", "autohealer-manager"},
		{"create", "clusterrolebinding", "manager", "--clusterrole=cluster-admin", "--serviceaccount=autohealer-system:autohealer-manager"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(t.Context(), "autohealer-system", "autohealer-manager")
	if err != nil {
		t.Fatal(err)
	}
	asManager, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddNodes(t.Context(), 20, cluster.NodeOptions{Zones: 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddNodes(t.Context(), 2, cluster.NodeOptions{Prefix: "plane", ControlPlane: true}); err != nil {
		t.Fatal(err)
	}
	return &world{
		T: t, cluster: c, admin: kubernetes.NewForConfigOrDie(c.Config),
		managerConfig: asManager, manager: kubernetes.NewForConfigOrDie(asManager),
		sets: dynamic.NewForConfigOrDie(c.Config).Resource(ConditionSets{}.Policies()),
	}
}

// set creates a ConditionSet and gives its UID.
func (w *world) set(name, key, more string) types.UID {
	w.Helper()
	text := fmt.Sprintf(`{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ConditionSet","metadata":{"name":%q},
		"spec":{"type":"Broken","effect":"NoSchedule","taintKey":%q,"conditions":{"Broken":{"status":true}}%s}}`, name, key, more)
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		w.Fatal(err)
	}
	created, err := w.sets.Create(w.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created.GetUID()
}

func (w *world) change(name, patch string) {
	w.Helper()
	if _, err := w.sets.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) deleteSet(name string) {
	w.Helper()
	if err := w.sets.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) flip(node string, status corev1.ConditionStatus) {
	w.Helper()
	if err := w.cluster.SetCondition(w.Context(), node, "Broken", status, cluster.ConditionOptions{}); err != nil {
		w.Fatal(err)
	}
}

// owned is a record with one claim.
func owned(set types.UID, generation int, taint string) string {
	key, effect, _ := strings.Cut(taint, ":")
	return fmt.Sprintf(`{"taints":[{"key":%q,"effect":%q,"set":%q,"name":"s","generation":%d,"since":"2026-11-21T03:00:00Z"}]}`, key, effect, set, generation)
}

// write gives a node exactly these taints ("key:effect") and this record.
func (w *world) write(by kubernetes.Interface, node, record string, taints ...string) {
	w.Helper()
	list := []corev1.Taint{}
	for _, taint := range taints {
		key, effect, _ := strings.Cut(taint, ":")
		list = append(list, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
	annotations := map[string]any{"autohealer.resourcestack.com/owned-taints": nil}
	if record != "" {
		annotations["autohealer.resourcestack.com/owned-taints"] = record
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{"taints": list},
	})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := by.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// hold annotates a node as people do; "" takes the annotation off.
func (w *world) hold(node, until string) {
	w.Helper()
	value := "null"
	if until != "" {
		value = quoted(until)
	}
	patch := `{"metadata":{"annotations":{"autohealer.resourcestack.com/hold-until":` + value + `}}}`
	if _, err := w.admin.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// remove deletes a node, as an autoscaler does, and gives what puts another one in its place.
func (w *world) remove(name string) (restore func()) {
	w.Helper()
	node, err := w.admin.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = w.admin.CoreV1().Nodes().Delete(w.Context(), name, metav1.DeleteOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	return func() {
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: node.Labels}}
		if _, err := w.admin.CoreV1().Nodes().Create(w.Context(), other, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		if err := w.cluster.SetCondition(w.Context(), name, corev1.NodeReady, corev1.ConditionTrue, cluster.ConditionOptions{}); err != nil {
			w.Fatal(err)
		}
		w.allAvailable()
	}
}

// cordon keeps pods from nodes, as a drain does, and gives what ends that.
func (w *world) cordon(nodes ...string) (uncordon func()) {
	w.Helper()
	kubectl := func(verb string) {
		if _, err := w.cluster.Kubectl(w.Context(), append([]string{verb}, nodes...)...); err != nil {
			w.Fatal(err)
		}
	}
	kubectl("cordon")
	return func() {
		kubectl("uncordon")
		w.allAvailable()
	}
}

// allAvailable waits until Kubernetes keeps pods from no node.
func (w *world) allAvailable() {
	w.Helper()
	available := func(ctx context.Context) (bool, error) {
		all, err := w.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(all.Items, func(n corev1.Node) bool {
			return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") })
		}), nil
	}
	if err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, time.Minute, true, available); err != nil {
		w.Fatal(err)
	}
}

// clean makes the world as it was, by the admin's hand.
func (w *world) clean() {
	w.Helper()
	sets, err := w.sets.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range sets.Items {
		w.change(sets.Items[i].GetName(), `{"metadata":{"finalizers":null}}`)
	}
	if err := w.sets.DeleteCollection(w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		w.Fatal(err)
	}
	nodes, err := w.admin.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, node := range nodes.Items {
		if len(node.Spec.Taints) > 0 || len(node.Annotations) > 0 {
			w.write(w.admin, node.Name, "")
		}
	}
}

// A case is what the manager does, and which invariants that breaks, in order.
type testCase struct {
	name    string
	options Options
	do      func(*world)
	broken  []Invariant
	text    string // part of the first violation's text
}

func refuseRefused(policy *unstructured.Unstructured) error {
	if policy.GetName() == "refused" {
		return errors.New("matches healthy nodes")
	}
	return nil
}

func TestTheOracleFindsWhatABrokenManagerDoes(t *testing.T) {
	w := newWorld(t)
	for _, tests := range [][]testCase{correct, unvalidated, doubtful, notOwn, unlimited, orphaned, repeated} {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { w.run(t, test) })
		}
	}
}

func (w *world) run(t *testing.T, test testCase) {
	here := *w
	here.T = t
	var err error
	here.oracle, err = Attach(t.Context(), w.cluster, test.options)
	if err != nil {
		t.Fatal(err)
	}
	defer here.oracle.Stop()
	defer here.clean()
	test.do(&here)
	var found []Violation
	if len(test.broken) == 0 {
		found = here.oracle.Check(t.Context())
	} else { // what is overdue only shows after its time
		_ = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
			found = here.oracle.Check(ctx)
			return len(found) > 0, nil
		})
	}
	var invariants []Invariant
	for _, v := range found {
		invariants = append(invariants, v.Invariant)
	}
	if !slices.Equal(invariants, test.broken) {
		t.Errorf("expected %q, found:\n%v", test.broken, found)
	}
	if len(found) > 0 && !strings.Contains(found[0].String(), test.text) {
		t.Errorf("%q isn't in %s", test.text, found[0])
	}
}

func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}
