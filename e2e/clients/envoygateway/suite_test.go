//go:build linux

package envoygateway

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

// hostIP is the backends' address: EndpointSlices take none of loopback.
const hostIP = "192.0.2.1"

var (
	h *harness.Harness
	g *gateway

	watching *oracle.Oracle
)

// Whatever a spec asserts, no Gateway may have been patched against the invariants while it ran.
var _ = AfterEach(func(ctx SpecContext) {
	Expect(watching.News(ctx)).To(BeEmpty(), "the oracle saw invariants broken")
}, NodeTimeout(time.Minute))

// Envoy Gateway listens at fixed ports of all addresses, and so do the Envoys that it configures.
func TestEnvoyGateway(t *testing.T) {
	envoy.Binary(t)
	binDir, err := cluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"envoy-gateway", "envoygateway-crds.yaml"} {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			t.Skipf("there is no %s in %s: make envoygateway puts it there, make test-clients as well", name, binDir)
		}
	}
	suite.RunInOwnNetwork(t, "Envoy Gateway", netip.MustParseAddr(hostIP))
}

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{
		Out: GinkgoWriter, ManagerArgs: []string{"--leader-elect=false", "--v=1"},
		// Which it else takes from the default route, and there is none.
		Cluster: cluster.Options{ExtraArgs: map[cluster.Component][]string{cluster.APIServer: {"--advertise-address=" + hostIP}}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	Expect(h.StartManager(ctx)).To(Succeed()) // first: specs that restart it have the other order
	g = install(ctx)
	watching, err = oracle.Attach(ctx, h.Cluster, oracle.Options{Kinds: []oracle.Kind{oracle.OutlierPolicies{Gateways: true}}, Guardrails: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watching.Stop)
	g.start(ctx, patches)
}, NodeTimeout(5*time.Minute))
