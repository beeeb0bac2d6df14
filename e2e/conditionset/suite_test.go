// Package conditionset tests what ConditionSets do on a real control plane, with the whole manager under its own account.
package conditionset

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/evidence"
)

func TestConditionSets(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "ConditionSets act")
}

const (
	none   = ""
	prefer = "PreferNoSchedule"
	repel  = "NoSchedule"
	evict  = "NoExecute"
)

var w *fixture.World

var _ = evidence.OfFailures(func() *harness.Harness { return w.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	// One manager needs no election, and a restarted one would wait for the dead one's lease.
	w = fixture.Start(ctx, "--leader-elect=false")
})

var _ = AfterEach(func(ctx SpecContext) { w.CheckInvariants(ctx) })
