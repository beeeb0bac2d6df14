package flux

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/page"
)

const (
	root     = "../../.."
	specTime = 3 * time.Minute
	// manager is the one that works, as a process beside the cluster.
	manager cluster.Component = "manager"
)

var (
	c     *cluster.Cluster
	admin client.Client
	node  string
	// howTo and concept are the pages whose files are applied as they are printed.
	howTo, concept *page.Page
	// webhookPort is the manager's.
	webhookPort int
)

func TestFlux(t *testing.T) {
	suite.Run(t, "Flux")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	bin, err := cluster.BinDir()
	Expect(err).NotTo(HaveOccurred())
	if _, err := os.Stat(filepath.Join(bin, "kustomize-controller")); err != nil {
		Skip("there is no bin/kustomize-controller: make flux builds it, make test-ecosystem as well")
	}
	c, err = cluster.Start(ctx, cluster.Options{ControllerManager: true, Scheduler: true, Kwok: true, Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	admin, err = client.New(c.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	nodes, err := c.AddNodes(ctx, 4, cluster.NodeOptions{})
	Expect(err).NotTo(HaveOccurred())
	node = nodes[0]
	howTo, err = page.Read(root, "docs/how-to/flux.md")
	Expect(err).NotTo(HaveOccurred())
	concept, err = page.Read(root, "docs/concepts/gitops.md")
	Expect(err).NotTo(HaveOccurred())
	webhookPort, err = cluster.FreePort()
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, gardener.Definitions) // what samples are about
	serveRepository(ctx)
	startFlux(ctx)
}, NodeTimeout(2*time.Minute))

var _ = JustAfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() && c != nil {
		AddReportEntry("Flux says", kubectl(ctx, "get", "gitrepositories,kustomizations", "-A"))
		AddReportEntry("logs stay", c.KeepLogs())
	}
}, NodeTimeout(specTime))

func startFlux(ctx SpecContext) {
	GinkgoHelper()
	kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(c.BinDir, "flux.yaml"))
	kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	kubectl(ctx, "create", "namespace", "flux-system")
	artifacts := cluster.FreeAddress()
	start(ctx, "source-controller", "--storage-path="+c.Dir, "--storage-addr="+artifacts, "--storage-adv-addr="+artifacts)
	start(ctx, "kustomize-controller", "--requeue-dependency=1s")
}

// start starts one of Flux's controllers.
func start(ctx SpecContext, name cluster.Component, args ...string) {
	GinkgoHelper()
	health := cluster.FreeAddress()
	command := []string{"KUBECONFIG=" + c.Kubeconfig, "TMPDIR=" + c.Dir, filepath.Join(c.BinDir, string(name)), "--health-addr=" + health, "--metrics-addr=0"}
	Expect(c.AddProgram(name, "/usr/bin/env", append(command, args...), cluster.HTTPReady("http://"+health+"/readyz"))).To(Succeed())
	Expect(c.StartComponent(ctx, name)).To(Succeed())
}

// startManager starts the manager by the account that Flux has made.
func startManager(ctx SpecContext) {
	GinkgoHelper()
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	clientCA := filepath.Join(c.Dir, "envoys.crt")
	Expect(os.WriteFile(clientCA, envoy.NewAuthority(GinkgoTB()).PEM(), 0o600)).To(Succeed())
	health := cluster.FreeAddress()
	Expect(c.AddProgram(manager, filepath.Join(c.BinDir, "manager"), []string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + harness.Namespace, "--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", webhookPort),
		"--health-probe-bind-address=" + health, "--metrics-bind-address=0", "--cert-settle=1s", "--probe-loopback",
		"--xds-bind-address=" + cluster.FreeAddress(), "--xds-client-ca=" + clientCA, "--xds-client=spiffe://example.org/edge=*",
	}, cluster.HTTPReady("http://"+health+"/readyz"))).To(Succeed())
	Expect(c.StartComponent(ctx, manager)).To(Succeed())
}
