// Package outlierpolicy tests OutlierPolicies from kubectl to an Envoy that ejects a failing host: a real control plane, the
// whole manager under its own account and behind its webhook, real Envoys and real backends.
package outlierpolicy

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/evidence"
)

func TestOutlierPolicies(t *testing.T) {
	envoy.Binary(t)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Envoys eject what OutlierPolicies say")
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
)

var _ = evidence.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(harness.Within)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	log.SetLogger(GinkgoLogr) // takes the API server's warnings
	if hostIP = findIP(); hostIP == "" {
		Skip("this machine has no IPv4 address but loopback's, which EndpointSlices may not have")
	}
	address = freeAddress(ctx)
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

func freeAddress(ctx context.Context) string {
	GinkgoHelper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer l.Close() //nolint:errcheck // it is somebody else's from now on
	return l.Addr().String()
}

func findIP() string {
	GinkgoHelper()
	all, err := net.InterfaceAddrs()
	Expect(err).NotTo(HaveOccurred())
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}

// servers are the CAs that Envoys trust: those that the manager publishes for its webhook.
func servers(ctx context.Context) []byte {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(h.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, config)).To(Succeed())
	Expect(config.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	return config.Webhooks[0].ClientConfig.CABundle
}
