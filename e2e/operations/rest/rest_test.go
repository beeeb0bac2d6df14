// Package rest counts what managers ask of the API server while there is nothing to do.
package rest

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

func TestRest(t *testing.T) {
	suite.Run(t, "Managers at rest")
}

const (
	// standby is the second replica.
	standby cluster.Component = "standby"
	// counted is for how long nothing may be asked: longer than what is looked for again and again lies apart, ten seconds.
	counted = 30 * time.Second
)

var (
	h *harness.Harness
	// way is that of both replicas to the API server.
	way *faultproxy.Watches
	// proxied is the kubeconfig that leads there.
	proxied string
)

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	_, err = h.AddNodes(ctx, 10, cluster.NodeOptions{Prefix: "worker"})
	Expect(err).NotTo(HaveOccurred())
	way, err = faultproxy.StartWatches(h.URL, h.CACert)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(way.Stop)
	direct, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	proxied = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(way.Kubeconfig(direct, proxied)).To(Succeed())
	Expect(h.StartManager(ctx, "--kubeconfig="+proxied)).To(Succeed())
	Expect(h.StartReplica(ctx, standby, "--kubeconfig="+proxied)).To(Succeed())
})

// asked is what both replicas have asked for since it was called last, but for the Lease, which is written to the end of time.
func asked() map[string]int {
	all := way.Asked()
	maps.DeleteFunc(all, func(request string, _ int) bool { return strings.Contains(request, "/leases/") })
	return all
}

// mark names the installation in a namespace as that whose the cluster is.
func mark(ctx context.Context, name string) {
	GinkgoHelper()
	var namespace corev1.Namespace
	Expect(h.Client.Get(ctx, client.ObjectKey{Name: name}, &namespace)).To(Succeed())
	_, err := h.Kubectl(ctx, "annotate", "--overwrite", "validatingwebhookconfiguration", "autohealer",
		"autohealer.resourcestack.com/installation="+name+"/"+string(namespace.UID))
	Expect(err).NotTo(HaveOccurred())
}

// ready says what each replica's readiness does; nobody is ready beside another installation.
func ready(ctx context.Context) []error {
	return []error{h.Ready(ctx, harness.Manager), h.Ready(ctx, standby)}
}

var standAside = HaveEach(MatchError(ContainSubstring("[-]installation failed")))

var _ = Describe("A leader and a standby with nothing to do", Ordered, func() {
	It("renew and read the Lease, and ask for nothing else", func(ctx SpecContext) {
		for _, sample := range []string{"conditionset-1", "weederconfig-1", "outlierpolicy-1", "guardrail"} { // probes ask, as users want
			_, err := h.Kubectl(ctx, "apply", "-f", filepath.Join(h.Root(), "config", "samples", sample+".yaml"))
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(asked, time.Minute, counted/3).Should(BeEmpty(), "what there is to do is done within a minute")
		began := time.Now()
		Consistently(asked, counted, time.Second).Should(BeEmpty())
		AddReportEntry("rest", fmt.Sprintf("nothing but the Lease for %s", time.Since(began).Round(time.Second)))
	}, NodeTimeout(3*time.Minute))

	It("learn by their watches that the cluster is another installation's by now", func(ctx SpecContext) {
		mark(ctx, "default")
		Eventually(ready).WithContext(ctx).Should(standAside)
	}, NodeTimeout(time.Minute))

	It("learn it by the first act where the watch died without a word", func(ctx SpecContext) {
		mark(ctx, harness.Namespace)
		Expect(h.StopComponent(standby)).To(Succeed())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(h.StartManager(ctx, "--kubeconfig="+proxied)).To(Succeed())
		Eventually(asked, time.Minute, counted/3).Should(BeEmpty())
		way.Silence("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")
		mark(ctx, "default")
		Consistently(h.Ready, counted/3).WithContext(ctx).WithArguments(harness.Manager).Should(Succeed(), "nothing told it")
		Expect(h.SetCondition(ctx, "worker-0", "KubeletUnhealthy", corev1.ConditionTrue, cluster.ConditionOptions{})).To(Succeed())
		Expect(h.SetCondition(ctx, "worker-0", "ContainerRuntimeUnhealthy", corev1.ConditionUnknown, cluster.ConditionOptions{})).To(Succeed())
		Eventually(h.Ready).WithContext(ctx).WithArguments(harness.Manager).Should(MatchError(ContainSubstring("[-]installation failed")))
	}, NodeTimeout(3*time.Minute))
})
