package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

// chart is what is installed.
const chart = "../../charts/autohealer"

// manager is the one that works, as a process beside the cluster.
const manager cluster.Component = "manager"

var (
	c     *cluster.Cluster
	admin client.Client
	nodes []string
)

func TestClients(t *testing.T) {
	suite.Run(t, "Clients")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	for _, name := range []string{"helm", "helm3"} {
		if _, err := os.Stat(filepath.Join("..", "..", "bin", name)); err != nil {
			Skip(fmt.Sprintf("there is no bin/%s: make helm builds it, make test-clients as well", name))
		}
	}
	var err error
	c, err = cluster.Start(ctx, cluster.Options{ControllerManager: true, Scheduler: true, Kwok: true, Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	admin, err = client.New(c.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	nodes, err = c.AddNodes(ctx, 4, cluster.NodeOptions{})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(2*time.Minute))

// helmClient is one version of Helm, and a release of the chart that it keeps.
type helmClient struct {
	binary, namespace string
	// port of the manager's webhook.
	port int
}

// run gives what Helm says, of both outputs.
func (h *helmClient) run(ctx context.Context, args ...string) (string, error) {
	output, err := c.Helm(ctx, h.binary, append(args, "--namespace="+h.namespace)...)
	GinkgoWriter.Printf("$ %s %s\n%.4000s\n", h.binary, strings.Join(args, " "), output)
	return output, err
}

// must is run that succeeds.
func (h *helmClient) must(ctx context.Context, args ...string) string {
	GinkgoHelper()
	output, err := h.run(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// values of the release, beside the defaults: the manager that works isn't behind the Service.
func (h *helmClient) values(more ...string) []string {
	return append([]string{
		"--set=image.registry=images.example.org", fmt.Sprintf("--set=webhook.url=https://127.0.0.1:%d/validate", h.port), "--timeout=90s", "--wait",
	}, more...)
}

// startManager starts the manager by the release's own account.
func (h *helmClient) startManager(ctx context.Context) {
	GinkgoHelper()
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, h.namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	health := cluster.FreeAddress()
	Expect(c.AddProgram(manager, filepath.Join(c.BinDir, "manager"), []string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + h.namespace, "--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", h.port),
		"--health-probe-bind-address=" + health, "--metrics-bind-address=0", "--cert-settle=1s",
	}, cluster.HTTPReady("http://"+health+"/readyz"))).To(Succeed())
	Expect(c.StartComponent(ctx, manager)).To(Succeed())
}
