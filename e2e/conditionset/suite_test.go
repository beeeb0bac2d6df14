// Package conditionset tests what ConditionSets do on a real control plane, with the whole manager under its own account.
package conditionset

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

func TestConditionSets(t *testing.T) {
	suite.RunApart(t, "ConditionSets act", "memory_test") // what it deletes counts under the limits for minutes
}

const (
	none   = ""
	prefer = "PreferNoSchedule"
	repel  = "NoSchedule"
	evict  = "NoExecute"
)

var w *fixture.World

var _ = suite.OfFailures(func() *harness.Harness { return w.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	// One manager needs no election, and a restarted one would wait for the dead one's lease.
	w = fixture.Start(ctx, "--leader-elect=false")
})

var _ = AfterEach(func(ctx SpecContext) { w.CheckInvariants(ctx) })
