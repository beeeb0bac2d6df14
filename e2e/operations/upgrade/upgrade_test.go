// Package upgrade tests that a newer version takes over from the one before it, and the older one from it, while policies of all
// kinds act: nothing of what was done is undone on the way, both count what the other did, and either undoes it.
package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

func TestUpgrade(t *testing.T) {
	envoy.Binary(t)
	suite.Run(t, "An upgrade and a rollback while policies act")
}

var h *world.World

var _ = suite.OfFailures(func() *harness.Harness { return h.Started() })

// version is one that is installed: the tree with its config, and its manager.
type version struct{ tree, manager string }

// become installs a version and starts its manager in place of the one that runs.
func become(ctx context.Context, v version) {
	GinkgoHelper()
	Expect(h.InstallFrom(ctx, v.tree)).To(Succeed())
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	h.Program = v.manager
	Expect(h.StartManager(ctx)).To(Succeed())
}

// sicken has a further node be tainted, or its taint go, which shows that the version at work acts within limits that count
// what the other did.
func sicken(ctx context.Context, node int, status corev1.ConditionStatus) {
	GinkgoHelper()
	Expect(h.SetCondition(ctx, h.Nodes[node], "Broken", status, cluster.ConditionOptions{})).To(Succeed())
	tainted := ContainElement(h.Nodes[node] + " " + world.RepelKey + ":NoSchedule")
	if status != corev1.ConditionTrue {
		tainted = Not(tainted)
	}
	Eventually(h.Done).WithContext(ctx).Should(tainted)
}

var _ = Describe("An upgrade, a rollback and an upgrade again", func() {
	It("undo nothing while policies act, and leave nothing behind once they don't", func(ctx SpecContext) {
		tree, manager := world.Previous(ctx)
		old := version{tree, manager}
		envoys := world.NewEnvoys()
		started, err := harness.Start(ctx, harness.Options{
			Out: GinkgoWriter, From: old.tree, ManagerArgs: append(envoys.ManagerArgs(), "--leader-elect=false", "--probe-loopback"),
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(started.Stop()).To(Succeed()) })
		h = world.On(started)
		head := version{tree: h.Root(), manager: h.Program}
		h.Program = old.manager
		for i := range 30 {
			added, err := h.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: fmt.Sprintf("worker-%d", i)})
			Expect(err).NotTo(HaveOccurred())
			h.Nodes = append(h.Nodes, added...)
		}
		Expect(h.StartManager(ctx)).To(Succeed())
		h.CreatePolicies(ctx)
		h.UnderOracle(ctx)
		h.Break(ctx)
		e, ejected := eject(ctx, envoys)
		churn := e.Churn()

		for _, to := range []struct {
			name string
			version
			status corev1.ConditionStatus
		}{{"upgrade", head, corev1.ConditionTrue}, {"rollback", old, corev1.ConditionFalse}, {"upgrade again", head, corev1.ConditionTrue}} {
			By(to.name)
			seen := watch(ctx)
			become(ctx, to.version)
			sicken(ctx, 2, to.status)
			Expect(h.Done(ctx)).To(ContainElements(h.Everything()))
			Expect(seen.changes()).To(BeEmpty(), "an object that was acted on stayed as it was")
			Expect(e.Ejected(webCluster)).To(Equal(ejected))
		}
		Expect(e.Churn()).To(Equal(churn), "Envoy kept its clusters and hosts")

		By("recovery, by the newer, of what the older did")
		sicken(ctx, 2, corev1.ConditionFalse)
		h.Mend(ctx)
		h.Dial(ctx, "Up")
		Eventually(h.Done).WithContext(ctx).WithTimeout(4*harness.Within).Should(Equal(append(h.Nothing(), "Dialled=True")), "after the minute for which a target must be healthy")

		By("deletion of policies, by the older, of what the newer did")
		h.Sicken(ctx)
		again := h.Everything()
		again[1] = strings.Replace(again[1], "NoExecute", "NoSchedule", 1)
		Eventually(h.Done).WithContext(ctx).WithTimeout(2*harness.Within).Should(Equal(again), "no node of a zone evicts within five minutes of another")
		become(ctx, old)
		deletePolicies(ctx)
		Eventually(h.Done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(Equal(h.Nothing()))
		records, err := h.Records(ctx)
		Expect(err).NotTo(HaveOccurred())
		copied := func(record string) bool { return strings.HasPrefix(record, "ReplicaSet/") } // by kube-controller-manager, from the Deployment
		Expect(slices.DeleteFunc(records, copied)).To(BeEmpty())
	}, NodeTimeout(8*time.Minute))
})

// deletePolicies deletes all, and returns when their finalizers have let them go.
func deletePolicies(ctx context.Context) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "delete", "conditionsets,healthcheckregistrations,outlierpolicies,probeconfigs", "--all", "-A", "--timeout=60s")
	Expect(err).NotTo(HaveOccurred())
}

const webCluster = "edge/web/80"

// eject has a real Envoy eject one of three hosts for an hour.
func eject(ctx context.Context, envoys *world.Envoys) (*envoy.Envoy, []string) {
	GinkgoHelper()
	ip := envoy.HostIP(GinkgoTB())
	Expect(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "edge"}})).To(Succeed())
	apply(ctx, `
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: edge}, spec: {ports: [{name: http, port: 80}]}}
---
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: web, namespace: edge}
spec:
  targetRefs: [{group: "", kind: Service, name: web}]
  outlierDetection: {consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 1h, maxEjectionTime: 1h}
`)
	var backends []*envoy.Backend
	for i := range 3 {
		backends = append(backends, envoy.NewBackendOn(GinkgoTB(), ip))
		apply(ctx, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: edge, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`, i, backends[i].Port, ip))
	}
	e := h.StartEnvoy(ctx, envoys, envoy.Listener{Name: webCluster, Cluster: webCluster})
	Eventually(func() []envoy.Host { return e.Hosts(webCluster) }).Should(HaveLen(3))
	backends[0].Answer(500)
	ejected := []string{backends[0].Address}
	Eventually(func() []string { e.Statuses(webCluster, 3); return e.Ejected(webCluster) }).Should(Equal(ejected))
	return e, ejected
}

func apply(ctx context.Context, manifest string) {
	GinkgoHelper()
	_, err := h.Apply(ctx, manifest)
	Expect(err).NotTo(HaveOccurred())
}
