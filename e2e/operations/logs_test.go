package operations

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// kubelet answers an API server's question for a container's log; kwok's doesn't.
type kubelet struct {
	mu   sync.Mutex
	logs map[string]string // by pod, with a ? for that of before its restart; needs mu
}

func (k *kubelet) tell(pod, log string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs[pod] = log
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/containerLogs/"), "/")
	pod := parts[1]
	if r.URL.Query().Get("previous") == "true" {
		pod += "?"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	log, ok := k.logs[pod]
	if !ok || len(parts) != 3 || parts[0] != harness.Namespace || parts[2] != "manager" {
		http.Error(w, "the disk is broken", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte(log)) // whoever reads may have gone
}

// node has a new node whose kubelet this is.
func (k *kubelet) node(ctx context.Context) string {
	GinkgoHelper()
	server := httptest.NewTLSServer(k)
	DeferCleanup(server.Close)
	name := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "logs"})[0]
	_, err := w.Kubectl(ctx, "patch", "node", name, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, server.Listener.Addr().(*net.TCPAddr).Port))
	Expect(err).NotTo(HaveOccurred())
	return name
}

// deployManager creates the Deployment that comes with Autohealer, and gives its pods' names once they run on a node.
func deployManager(ctx context.Context, node string) (pods []string) {
	GinkgoHelper()
	text, err := w.Kubectl(ctx, "kustomize", filepath.Join(w.Root(), "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	all := strings.Split(text, "\n---\n")
	i := slices.IndexFunc(all, func(one string) bool { return strings.Contains(one, "\nkind: Deployment\n") })
	Expect(i).To(BeNumerically(">=", 0))
	manager := &appsv1.Deployment{}
	Expect(yaml.Unmarshal([]byte(all[i]), manager)).To(Succeed())
	manager.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	Expect(w.Client.Create(ctx, manager)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(w.Client.Delete(ctx, manager, client.PropagationPolicy("Foreground"))).To(Succeed())
		Eventually(func() ([]corev1.Pod, error) {
			var left corev1.PodList
			err := w.Client.List(ctx, &left, client.InNamespace(harness.Namespace))
			return left.Items, err
		}).WithContext(ctx).Should(BeEmpty())
	})
	Eventually(func(ctx context.Context) (names []string, err error) {
		var running corev1.PodList
		err = w.Client.List(ctx, &running, client.InNamespace(harness.Namespace))
		for _, p := range running.Items {
			if p.Status.Phase == corev1.PodRunning {
				names = append(names, p.Name)
			}
		}
		slices.Sort(names)
		pods = names
		return names, err
	}).WithContext(ctx).Should(HaveLen(2))
	return pods
}

// tainted is a line of the audit trail.
func tainted(node, minute string) string {
	return `{"time":"2026-11-21T03:` + minute + `:00Z","logger":"history","verb":"Taint","reason":"ConditionsMatched","policyKind":"ConditionSet","policy":"kernel",` +
		`"targetKind":"Node","target":"` + node + `","taintKey":"example.com/kernel","before":"","after":"NoSchedule"}` + "\n"
}

var _ = Describe("kubectl autohealer history", func() {
	It("reads the logs of all of the manager's pods, also of before a restart, and says what it can't read", func(ctx SpecContext) {
		Expect(plugin(ctx, "history")).To(Equal(said{2, "", "error: find the manager: deployments.apps \"autohealer-manager\" not found; a log in a file, such as that of the manager of make run, is read with -f\n"}))

		k := &kubelet{logs: map[string]string{}}
		pods := deployManager(ctx, k.node(ctx))
		_, err := w.Kubectl(ctx, "patch", "pod", "-n", harness.Namespace, pods[0], "--subresource=status", "-p", `{"status":{"containerStatuses":[{"name":"manager","restartCount":1}]}}`)
		Expect(err).NotTo(HaveOccurred())
		const broken = `the log of pod [^ ]+( before its container's last restart)?: [^;\n]*the disk is broken[^;\n]*`
		Expect(plugin(ctx, "history")).To(SatisfyAll(HaveField("Code", 2), HaveField("Out", BeEmpty()), HaveField("Err",
			MatchRegexp("^error: can't read what was done: "+broken+"; "+broken+"; "+broken+"\n$"))))

		k.tell(pods[0], "it began\n"+tainted("worker-2", "20"))
		k.tell(pods[1], tainted("worker-3", "30")+tainted("worker-1", "10"))
		row := func(node, minute string) string {
			return "2026-11-21T03:" + minute + ":00Z +Taint +node/" + node + " +conditionset/kernel +ConditionsMatched +example.com/kernel:NoSchedule\n"
		}
		Expect(plugin(ctx, "history")).To(SatisfyAll(HaveField("Code", 0),
			HaveField("Out", MatchRegexp("^TIME .*\n"+row("worker-1", "10")+row("worker-2", "20")+row("worker-3", "30")+"$")),
			HaveField("Err", MatchRegexp("^warning: acts may be missing: "+broken+"\n$"))))

		k.tell(pods[0]+"?", tainted("worker-0", "00"))
		Expect(plugin(ctx, "history", "node/worker-0")).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", MatchRegexp("^TIME .*\n"+row("worker-0", "00")+"$"))))
		Expect(plugin(ctx, "history", "--since=1h")).To(Equal(said{0, "", "These logs record no act.\n"}), "all of it was long ago")
	})
})
