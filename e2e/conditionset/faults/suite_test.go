// Package faults tests ConditionSets while what they run on breaks: the manager dies, stands still, loses its watch or its
// lease, or the API server goes away. The oracle judges every event of it.
package faults

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

func TestFaults(t *testing.T) {
	suite.Run(t, "ConditionSets under faults")
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

// pause lets a random time pass before a fault, so that it hits anywhere.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
