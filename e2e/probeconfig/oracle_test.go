package probeconfig

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/oracle"
)

// underOracle has everything judged that the manager writes, from now until the container's or spec's end. Known are violations
// that a spec brings about; nil: none.
func underOracle(ctx context.Context, known func(oracle.Violation) bool) *oracle.Oracle {
	GinkgoHelper()
	watching, err := oracle.Attach(ctx, h.Cluster, oracle.Options{Kinds: []oracle.Kind{oracle.ProbeConfigs{}}, Guardrails: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		defer watching.Stop()
		violations := watching.Check(ctx)
		if known != nil {
			violations = slices.DeleteFunc(violations, known)
		}
		Expect(violations).To(BeEmpty(), "what the oracle saw")
	}, NodeTimeout(specTime))
	return watching
}
