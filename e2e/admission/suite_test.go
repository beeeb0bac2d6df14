package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/oracle"
	"github.com/resourcestack/autohealer/internal/guard"
)

// fleet is the number of nodes that are there in every spec. Of so few, the built-in limits allow one tainted node.
const fleet = 12

// specTime bounds one spec; some restart the manager several times.
const specTime = 4 * time.Minute

var (
	h        *harness.Harness
	watching *oracle.Oracle
	reported int // violations that an earlier spec has failed with
)

func TestAdmission(t *testing.T) {
	suite.Run(t, "Admission and status")
}

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	watching, err = oracle.Attach(ctx, h.Cluster, oracle.Options{Admissible: admissible()})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { watching.Stop() })
	Expect(h.LetProbe(ctx, harness.Namespace)).To(Succeed())
	Expect(h.StartManager(ctx)).To(Succeed())
	_, err = h.AddNodes(ctx, fleet, cluster.NodeOptions{Prefix: "fleet"})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(specTime))

var _ = AfterEach(func(ctx SpecContext) {
	violations := watching.Check(ctx)
	fresh := violations[min(reported, len(violations)):]
	reported = len(violations)
	Expect(fresh).To(BeEmpty(), "the oracle saw invariants broken")
}, NodeTimeout(specTime))

// admissible asks the rules themselves, so that the oracle knows a policy that nothing may act for.
func admissible() func(*unstructured.Unstructured) error {
	rules, err := guard.New(guard.Options{})
	Expect(err).NotTo(HaveOccurred())
	return func(policy *unstructured.Unstructured) error {
		set := &v1alpha1.ConditionSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(policy.Object, set); err != nil {
			return fmt.Errorf("read the policy: %w", err)
		}
		if _, verdict := guard.Admit(context.Background(), rules, set); !verdict.Allowed {
			return errors.New(verdict.Message())
		}
		return nil
	}
}
