package probeconfig

import (
	. "github.com/onsi/ginkgo/v2"
)

// Specs of targets that don't depend on what becomes of others.
var _ = Describe("dependents are scaled", Ordered, ContinueOnFailure, func() {
	a := &alone{}
	BeforeAll(a.begin, NodeTimeout(specTime))

	backOff()
	a.bearSilence()
	rotateCredentials()
	swallow()
	kindsAndSecrets()
})

// alone is what these specs share.
type alone struct{ gate *gate }

func (a *alone) begin(ctx SpecContext) {
	underOracle(ctx, nil)
	a.gate = throughGate(ctx)
	capTargets(ctx, noCap)
	newWave(ctx) // which is well, so that nothing is suspected of what these specs break
}
