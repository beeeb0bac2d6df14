package probeconfig

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/oracle"
)

// underOracle has everything judged that the manager writes, from now until the container's or spec's end.
func underOracle(ctx context.Context) {
	GinkgoHelper()
	watching, err := oracle.Attach(ctx, h.Cluster, oracle.Options{Kinds: []oracle.Kind{oracle.ProbeConfigs{}}, Guardrails: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		defer watching.Stop()
		Expect(watching.Check(ctx)).To(BeEmpty(), "what the oracle saw")
	}, NodeTimeout(3*time.Minute))
}
