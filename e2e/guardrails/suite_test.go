package guardrails

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

func TestGuardrails(t *testing.T) {
	suite.Run(t, "Guardrails")
}

const (
	none   = ""
	prefer = "PreferNoSchedule"
	repel  = "NoSchedule"
	evict  = "NoExecute"
)

var (
	w *fixture.World
	// token of who may read the manager's metrics.
	token string
)

var _ = suite.OfFailures(func() *harness.Harness { return w.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	// One manager needs no election, and a restarted one would wait for the dead one's lease.
	w = fixture.Start(ctx, "--leader-elect=false")
	var err error
	token, err = w.Scraper(ctx)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterEach(func(ctx SpecContext) { w.CheckInvariants(ctx) })
