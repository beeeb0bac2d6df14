package differential

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
)

// objectsAKind is how many random objects of each kind are made: two thirds are created, one third updates what is stored.
// From longRun on, every portable rule must have been seen in every verdict.
var objectsAKind = int(number("AUTOHEALER_DIFFERENTIAL", 60))

const longRun = 1000

// seed of all random choices; set AUTOHEALER_TEST_SEED to repeat a run.
var seed = number("AUTOHEALER_TEST_SEED", uint64(time.Now().UnixNano()))

func number(variable string, unless uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return unless
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(err) // a mistake on the command line
	}
	return n
}

var (
	h      *harness.Harness
	random = rand.New(rand.NewPCG(seed, 0))
	// patience is for one step over all objects; half a second for one is far more than any takes.
	patience = NodeTimeout(5*time.Minute + time.Duration(objectsAKind)*2*time.Second)
)

func TestDifferential(t *testing.T) {
	t.Logf("seed %d; set AUTOHEALER_TEST_SEED to repeat", seed)
	log.SetLogger(logr.Discard()) // there is a warning for each object; the first logger counts
	suite.Run(t, "Four judges, one verdict")
}

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, Cluster: cluster.Options{PolicyTypes: true}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	admin = newAdmin()
	for _, namespace := range []string{"default", harness.Namespace} {
		Expect(h.LetProbe(ctx, namespace)).To(Succeed())
	}
	Expect(h.StartManager(ctx)).To(Succeed())
	settle(ctx)
}, NodeTimeout(2*time.Minute))
