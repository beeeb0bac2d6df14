// Package probeconfig tests what ProbeConfigs do on a real control plane, with the whole manager under its own account.
// What is probed is the API server of a second control plane, by two ways that fail apart from each other.
package probeconfig

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/timings"
)

func TestProbeConfigs(t *testing.T) {
	suite.RunApart(t, "ProbeConfigs act", "alone_test|takeover_test", "leases_test|custom_test|drift_test|probing_test|witness_test")
}

var (
	// h has the configs and their dependents; probed is the cluster that they are about.
	h      *harness.Harness
	probed *cluster.Cluster
)

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(settled) // there are 200 targets beside those that a spec looks at
	var err error
	probed, err = cluster.Start(ctx, cluster.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(probed.Stop()).To(Succeed()) })
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, Timings: timings.OfSuites(), ManagerArgs: []string{"--leader-elect=false", "--probe-loopback"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	_, err = h.AddNodes(ctx, 2, cluster.NodeOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(h.StartManager(ctx)).To(Succeed())
})
