// Package weederconfig tests what WeederConfigs do on a real control plane, with the whole manager under its own account:
// real ReplicaSets, EndpointSlices and garbage collection, and pods that kwok plays.
package weederconfig

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

func TestWeederConfigs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "WeederConfigs act")
}

var (
	h     *harness.Harness
	proxy *countingProxy
)

var _ = BeforeSuite(func(ctx SpecContext) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(harness.Within)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	log.SetLogger(GinkgoLogr) // takes the API server's warnings
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, ManagerArgs: []string{"--leader-elect=false", "--pprof-bind-address=" + pprofAddress()}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	_, err = h.AddNodes(ctx, 3, cluster.NodeOptions{})
	Expect(err).NotTo(HaveOccurred())
	proxy = startProxy()
	Expect(h.StartManager(ctx, "--kubeconfig="+proxy.kubeconfig(ctx))).To(Succeed())
	// Most specs delete more pods a minute, together, than the built-in limit allows.
	liftLimit(ctx)
})

func liftLimit(ctx context.Context) {
	GinkgoHelper()
	most := int32(10000)
	Expect(h.Client.Create(ctx, &v1alpha1.Guardrail{ObjectMeta: named("", "lifted"), Spec: v1alpha1.GuardrailSpec{
		Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: &most},
	}})).To(Succeed())
}

var dryRun = client.DryRunAll
