// Package outlierpolicy tests OutlierPolicies from kubectl to an Envoy that ejects a failing host: a real control plane, the
// whole manager under its own account and behind its webhook, real Envoys and real backends.
package outlierpolicy

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

func TestOutlierPolicies(t *testing.T) {
	envoy.Binary(t)
	suite.RunApart(t, "Envoys eject what OutlierPolicies say", "slow_test|settings_test|replicas_test|restart_test")
}

// Names in the certificates of Envoys.
const (
	edge   = "spiffe://example.org/ns/edge/sa/envoy" // sees all namespaces
	tenant = "spiffe://example.org/ns/shop/sa/envoy" // sees shop
	nobody = "spiffe://example.org/ns/other/sa/envoy"
	// serverName is in the manager's certificate.
	serverName = "autohealer-xds." + harness.Namespace + ".svc"
)

var (
	h       *harness.Harness
	address string
	clients *envoy.Authority
	// clientCA is the manager's file of the CAs that sign Envoys' certificates.
	clientCA string
	// hostIP is an address that EndpointSlices may have: they take none of loopback.
	hostIP string

	watching *oracle.Oracle
)

// Whatever a spec asserts, no Envoy may have been told anything against the invariants while it ran.
var _ = AfterEach(func(ctx SpecContext) {
	Expect(watching.News(ctx)).To(BeEmpty(), "the oracle saw invariants broken")
}, NodeTimeout(time.Minute))

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	hostIP = envoy.HostIP(GinkgoTB())
	address = cluster.FreeAddress()
	clients = envoy.NewAuthority(GinkgoTB())
	clientCA = filepath.Join(GinkgoT().TempDir(), "clients.crt")
	trust(clients)
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, ManagerArgs: []string{
		"--leader-elect=false", "--v=1", "--xds-bind-address=" + address, "--xds-client-ca=" + clientCA,
		"--xds-client=" + edge + "=*", "--xds-client=" + tenant + "=shop", "--ejections-from=edge/envoys/ejections",
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	watching, err = oracle.Attach(ctx, h.Cluster, oracle.Options{Kinds: []oracle.Kind{oracle.OutlierPolicies{}}, Guardrails: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watching.Stop)
	Expect(h.StartManager(ctx)).To(Succeed())
})

// trust has the manager take certificates that these CAs sign, and no others.
func trust(all ...*envoy.Authority) {
	GinkgoHelper()
	var text []byte
	for _, a := range all {
		text = append(text, a.PEM()...)
	}
	Expect(os.WriteFile(clientCA+".new", text, 0o600)).To(Succeed())
	Expect(os.Rename(clientCA+".new", clientCA)).To(Succeed())
}

// servers are the CAs that Envoys trust: those that the manager publishes for its webhook.
func servers(ctx context.Context) []byte {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(h.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, config)).To(Succeed())
	Expect(config.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	return config.Webhooks[0].ClientConfig.CABundle
}
