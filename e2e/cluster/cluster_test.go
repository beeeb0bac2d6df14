package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// eventually fails the test with what holds gave last when it hasn't given nil within a minute.
func eventually(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = holds(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

func deployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
}

func TestAWholeControlPlane(t *testing.T) {
	c, err := Start(t.Context(), Options{ControllerManager: true, Scheduler: true, Kwok: true, Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Stop, %s: %v", c.Dir, err)
		}
	})
	client := kubernetes.NewForConfigOrDie(c.Config)

	names, err := c.AddNodes(t.Context(), 6, NodeOptions{Zones: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("nodes are spread over the zones, Ready and untainted", func(t *testing.T) {
		zones := map[string]int{}
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range nodes.Items {
			zones[node.Labels["topology.kubernetes.io/zone"]]++
			if len(node.Spec.Taints) > 0 {
				t.Errorf("%s has taints %v", node.Name, node.Spec.Taints)
			}
		}
		if len(names) != 6 || zones["zone-1"] != 2 || zones["zone-2"] != 2 || zones["zone-3"] != 2 {
			t.Errorf("names %v, zones %v", names, zones)
		}
	})
	t.Run("a deployment's pods run, and a NoExecute taint evicts those of the node", func(t *testing.T) { testEviction(t, client) })
	t.Run("a condition is written the way node-problem-detector does", func(t *testing.T) { testSetCondition(t, c, client) })
	t.Run("kubectl and a service account's kubeconfig work", func(t *testing.T) { testCredentials(t, c) })
	t.Run("a restarted API server has the data it had", func(t *testing.T) { testRestart(t, c, client) })
	t.Run("the audit log has writes of nodes with their bodies and no reads", func(t *testing.T) { testAuditLog(t, c) })
}

func testEviction(t *testing.T, client kubernetes.Interface) {
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment(6), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var victim corev1.Pod
	eventually(t, "six pods run", func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 6 {
			err = errors.New(d.Status.String())
		}
		return err
	})
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	victim = pods.Items[0]
	taint := `{"spec":{"taints":[{"key":"example.com/broken","effect":"NoExecute"}]}}`
	node, err := client.CoreV1().Nodes().Patch(t.Context(), victim.Spec.NodeName, types.MergePatchType, []byte(taint), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is evicted", func(ctx context.Context) error {
		_, err := client.CoreV1().Pods("default").Get(ctx, victim.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("still there"), err)
	})
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), node.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testSetCondition(t *testing.T, c *Cluster, client kubernetes.Interface) {
	get := func() (kernel corev1.NodeCondition, ready bool) {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, condition := range node.Status.Conditions {
			switch condition.Type {
			case "KernelDeadlock":
				kernel = condition
			case "Ready":
				ready = condition.Status == "True"
			}
		}
		return kernel, ready
	}
	set := func(status corev1.ConditionStatus, at time.Time) {
		if err := c.SetCondition(t.Context(), "node-0", "KernelDeadlock", status, ConditionOptions{Heartbeat: at}); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	set("False", start)
	set("False", start.Add(time.Minute))
	kernel, ready := get()
	if !kernel.LastHeartbeatTime.Time.Equal(start.Add(time.Minute)) || !kernel.LastTransitionTime.Time.Equal(start) || !ready {
		t.Errorf("a heartbeat gave %+v, Ready %t", kernel, ready)
	}
	set("True", start.Add(2*time.Minute))
	kernel, ready = get()
	if kernel.Status != "True" || !kernel.LastTransitionTime.Time.Equal(start.Add(2*time.Minute)) || !ready {
		t.Errorf("a flip gave %+v, Ready %t", kernel, ready)
	}
}

func testCredentials(t *testing.T, c *Cluster) {
	out, err := c.KubectlWithInput(t.Context(), strings.NewReader(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"robot","namespace":"default"}}`), "apply", "-f", "-")
	if err != nil || !strings.Contains(out, "created") {
		t.Fatalf("%s: %v", out, err)
	}
	path, err := c.ServiceAccountKubeconfig(t.Context(), "default", "robot")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:robot") {
		t.Errorf("a service account without roles lists nodes: %v", err)
	}
	if _, err := c.Kubectl(t.Context(), "get", "nodes", "no-such-node"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("kubectl's error is %v", err)
	}
	for _, file := range []string{path, c.Kubeconfig} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info, err)
		}
	}
}

func testRestart(t *testing.T, c *Cluster, client kubernetes.Interface) {
	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 6 {
		t.Errorf("%d nodes: %v", len(nodes.Items), err)
	}
	if err := c.Kill(APIServer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server is gone", func(context.Context) error {
		if c.processes[APIServer].pid() != 0 {
			return errors.New("still running")
		}
		return nil
	})
	if err := c.StartComponent(t.Context(), APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddNodes(t.Context(), 1, NodeOptions{}); err != nil {
		t.Errorf("the other components don't go on: %v", err)
	}
}

func testAuditLog(t *testing.T, c *Cluster) {
	log, err := os.ReadFile(c.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	patches := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"verb":"patch"`) && strings.Contains(line, `example.com/broken`) && strings.Contains(line, `"responseObject"`) {
			patches++
		}
		if strings.Contains(line, `"verb":"get"`) || strings.Contains(line, `"verb":"list"`) || strings.Contains(line, `"resource":"leases"`) {
			t.Errorf("logged: %.200s", line)
		}
	}
	if patches == 0 {
		t.Error("the patch that set example.com/broken is not in the log")
	}
}

func TestTheAPIServerAloneTakesNodesAndPods(t *testing.T) {
	goroutines := goleak.IgnoreCurrent()
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(c.Config)
	names, err := c.AddNodes(t.Context(), 2, NodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	planes, err := c.AddNodes(t.Context(), 1, NodeOptions{Prefix: "plane", ControlPlane: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 2 || names[1] != "node-1" || len(planes) != 1 || planes[0] != "plane-0" {
		t.Errorf("names: %v, %v", names, planes)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil || len(node.Spec.Taints) > 0 {
		t.Errorf("a node of nobody has taints: %v, %v", node.Spec.Taints, err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment(1), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: deployment(1).Spec.Template.Spec}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.StartComponent(t.Context(), Kwok); err == nil || !strings.Contains(err.Error(), "has no kwok") {
		t.Errorf("a component that wasn't asked for: %v", err)
	}
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, goroutines)
}

func TestLogsStayWhereSomeoneWantsThem(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := c.KeepLogs()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if got := strings.Join(left, " "); got != "audit.log logs" {
		t.Errorf("%q stay, want no keys and no data", got)
	}
	if tail := c.LogTail(APIServer, 3); strings.Count(tail, "\n") != 2 {
		t.Errorf("the log ends with %q, want 3 lines", tail)
	}
}

func TestACrashAtStartShowsTheComponentsLogAndLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := Start(t.Context(), Options{Dir: dir, ExtraArgs: map[Component][]string{Etcd: {"--no-such-flag"}}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") || !strings.Contains(err.Error(), "etcd exited") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run directory: %v", err)
	}
}

func TestAMissingBinaryIsNamed(t *testing.T) {
	_, err := Start(t.Context(), Options{BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make controlplane") {
		t.Errorf("error: %v", err)
	}
}

func TestNobodyAnswersAtAnUnservedAddress(t *testing.T) {
	if listener, err := net.Listen("tcp", Unserved()); err == nil {
		_ = listener.Close()
		t.Errorf("another program could listen at %s", Unserved())
	}
	if _, err := net.Dial("tcp", Unserved()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want that it is refused", err)
	}
}

func TestPortsAreGivenOneAfterTheOther(t *testing.T) {
	given := map[int]bool{}
	for range 10 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] || local(port) == Unserved() {
			t.Errorf("port %d is given twice", port)
		}
		given[port] = true
	}
}
