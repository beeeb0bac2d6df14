//go:build linux

// Package pod tests the manager as users run it: in the image that make image makes, from config/default with the overlay of
// docs/how-to/install.md, in a Pod on a real kubelet.
package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/node"
)

func TestPod(t *testing.T) {
	if why := node.Unavailable(); why != "" {
		t.Skip(why)
	}
	suite.Run(t, "The manager in a Pod")
	for _, figure := range figures {
		t.Attr("measured", figure)
	}
}

// figures of this run; the summary of `make test` shows them.
var figures []string

// kwokLabel marks the nodes that kwok plays.
const kwokLabel = "autohealer.test/kwok"

var (
	c    *cluster.Cluster
	api  client.Client
	real *node.Node
	// ballast are kwok's nodes: so many that the limits let a few be tainted.
	ballast []string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	c, err = cluster.Start(ctx, cluster.Options{
		ControllerManager: true, Scheduler: true, Kwok: true, Out: GinkgoWriter,
		ExtraArgs: map[cluster.Component][]string{
			cluster.Kwok: {"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + kwokLabel + "=true"},
			// There is no kube-proxy: the API server looks up the pods behind the webhook's Service itself.
			cluster.APIServer: {"--enable-aggregator-routing=true"},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(c.Stop()).To(Succeed()) })
	api, err = client.New(c.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	ballast, err = c.AddNodes(ctx, 100, cluster.NodeOptions{Prefix: "ballast", Labels: map[string]string{kwokLabel: "true"}})
	Expect(err).NotTo(HaveOccurred())
	real, err = node.Start(ctx, c, node.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(real.Stop()).To(Succeed()) })
	program := filepath.Join(c.BinDir, "linux-"+runtime.GOARCH, "manager")
	Expect(program).To(BeAnExistingFile(), "run `make build static`")
	Expect(real.Load(ctx, program, image+":v1", image+":v2")).To(Succeed())
}, NodeTimeout(3*time.Minute))

var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	pods, err := c.Kubectl(context.Background(), "describe", "pods", "-n", harness.Namespace)
	AddReportEntry("pods", fmt.Sprintln(pods, err))
	logs, _ := filepath.Glob(filepath.Join(real.Dir, "var/log/pods", harness.Namespace+"_*", "manager", "*.log"))
	for _, log := range logs {
		content, err := os.ReadFile(log)
		AddReportEntry(strings.TrimPrefix(log, real.Dir), fmt.Sprintln(tail(string(content)), err))
	}
	AddReportEntry("the kubelet's log ends with", c.LogTail(real.Kubelet, 30))
})

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
