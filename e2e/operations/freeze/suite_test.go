// Package freeze tests that a freeze stops policies of all kinds in the middle of their work, and that a thaw lets them go on
// within their limits: under the oracle, with a real Envoy.
package freeze

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

func TestFreeze(t *testing.T) {
	envoy.Binary(t)
	suite.Run(t, "A freeze stops all kinds")
}

// well nodes make room for the few that the limits let be tainted: 10 % of them.
const well = 30

var (
	h      *world.World
	envoys *world.Envoys
)

var _ = suite.OfFailures(func() *harness.Harness { return h.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	envoys = world.NewEnvoys()
	started, err := harness.Start(ctx, harness.Options{Out: GinkgoWriter, ManagerArgs: append(envoys.ManagerArgs(), "--leader-elect=false", "--probe-loopback")})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(started.Stop()).To(Succeed()) })
	h = world.On(started)
	for i := range well {
		added, err := h.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: fmt.Sprintf("worker-%d", i)})
		Expect(err).NotTo(HaveOccurred())
		h.Nodes = append(h.Nodes, added...)
	}
	Expect(h.StartManager(ctx)).To(Succeed())
})

// plugin runs the kubectl plugin as the admin.
func plugin(ctx context.Context, args ...string) world.Said {
	GinkgoHelper()
	return h.Plugin(ctx, h.Kubeconfig, args...)
}

func apply(ctx context.Context, manifests string) {
	GinkgoHelper()
	_, err := h.Apply(ctx, manifests, "--server-side") // a namespace's own account may come meanwhile
	Expect(err).NotTo(HaveOccurred())
}
