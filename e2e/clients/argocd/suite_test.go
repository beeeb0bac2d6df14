package argocd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	nodes []string
	// howTo and concept are the pages whose files are applied as they are printed.
	howTo, concept *page.Page
	// webhookPort is the manager's.
	webhookPort int
)

func TestArgoCD(t *testing.T) {
	suite.Run(t, "Argo CD")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute) // Argo CD tries again after five seconds, after ten, and after twenty
	bin, err := cluster.BinDir()
	Expect(err).NotTo(HaveOccurred())
	if _, err := os.Stat(filepath.Join(bin, "argocd")); err != nil {
		Skip("there is no bin/argocd: make argocd builds it, make test-ecosystem as well")
	}
	c, err = cluster.Start(ctx, cluster.Options{ControllerManager: true, Scheduler: true, Kwok: true, Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	admin, err = client.New(c.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	nodes, err = c.AddNodes(ctx, 4, cluster.NodeOptions{})
	Expect(err).NotTo(HaveOccurred())
	howTo, err = page.Read(root, "docs/how-to/argo-cd.md")
	Expect(err).NotTo(HaveOccurred())
	concept, err = page.Read(root, "docs/concepts/gitops.md")
	Expect(err).NotTo(HaveOccurred())
	webhookPort = freePort()
	Expect(apply(ctx, gardener.Definitions)).To(Succeed()) // what samples are about
	startArgoCD(ctx)
	Expect(os.Mkdir(repository(), 0o700)).To(Succeed())
	git(ctx, "init", "--quiet", "--initial-branch=main")
}, NodeTimeout(2*time.Minute))

// startManager starts the manager by the account that Argo CD has made.
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

// startStandby starts it anew while another one leads: it judges, and writes no status. The function ends that.
func startStandby(ctx SpecContext) (lead func()) {
	GinkgoHelper()
	Expect(c.StopComponent(manager)).To(Succeed())
	var leases coordinationv1.LeaseList
	Expect(admin.List(ctx, &leases, client.InNamespace(harness.Namespace))).To(Succeed())
	Expect(leases.Items).To(HaveLen(1))
	lease, other, long, now := &leases.Items[0], "another", int32(3600), metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &other, &long, &now
	Expect(admin.Update(ctx, lease)).To(Succeed())
	lead = sync.OnceFunc(func() { Expect(admin.Delete(context.Background(), lease)).To(Succeed()) })
	DeferCleanup(lead)
	startManager(ctx)
	return lead
}

// apply applies manifests as whoever installs Argo CD does.
func apply(ctx SpecContext, manifests string) error {
	_, err := c.KubectlWithInput(ctx, strings.NewReader(manifests), "apply", "--server-side", "-f", "-")
	return err
}
