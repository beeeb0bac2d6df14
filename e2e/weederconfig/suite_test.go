// Package weederconfig tests what WeederConfigs do on a real control plane, with the whole manager under its own account:
// real ReplicaSets, EndpointSlices and garbage collection, and pods that kwok plays.
package weederconfig

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
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/oracle"
	"github.com/resourcestack/autohealer/e2e/timings"
	"github.com/resourcestack/autohealer/internal/guard"
)

func TestWeederConfigs(t *testing.T) {
	suite.RunApart(t, "WeederConfigs act", "faults_test|time_test")
}

// lag is how long after a change the manager may still act by what was before: generous on a busy machine, and short of what
// the windows, cooldowns and pauses of these specs last.
const lag = 2 * time.Second

var (
	h        *harness.Harness
	proxy    *countingProxy
	watching *oracle.Oracle
	reported int // violations that an earlier spec has failed with
)

// Whatever a spec asserts, no pod may have been deleted against the invariants while it ran.
var _ = AfterEach(func(ctx SpecContext) {
	violations := watching.Check(ctx)
	fresh := violations[min(reported, len(violations)):]
	reported = len(violations)
	Expect(fresh).To(BeEmpty(), "the oracle saw invariants broken")
}, NodeTimeout(time.Minute))

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, Timings: timings.OfSuites(), ManagerArgs: []string{"--leader-elect=false"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	_, err = h.AddNodes(ctx, 3, cluster.NodeOptions{})
	Expect(err).NotTo(HaveOccurred())
	watching, err = oracle.Attach(ctx, h.Cluster, oracle.Options{
		Kinds: []oracle.Kind{oracle.WeederConfigs{}}, Guardrails: true, Lag: lag, Admissible: admissible(),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { watching.Stop() })
	proxy = startProxy(harness.Manager)
	Expect(h.StartManager(ctx, "--kubeconfig="+proxy.kubeconfig(ctx))).To(Succeed())
	// Most specs delete more pods a minute, together, than the built-in limit allows.
	liftLimit(ctx)
})

// admissible asks the built-in rules over the config itself. What accounts may do the oracle knows by itself.
func admissible() func(*unstructured.Unstructured) error {
	rules, err := guard.New(guard.Options{OwnNamespace: harness.Namespace, Authorizer: anything{}})
	Expect(err).NotTo(HaveOccurred())
	return func(policy *unstructured.Unstructured) error {
		if policy.GetKind() != "WeederConfig" {
			return nil
		}
		wc := &v1alpha1.WeederConfig{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(policy.Object, wc); err != nil {
			return fmt.Errorf("read the config: %w", err)
		}
		if _, verdict := guard.Admit(context.Background(), rules, wc); !verdict.Allowed {
			return errors.New(verdict.Message())
		}
		return nil
	}
}

// anything is allowed to everybody.
type anything struct{}

func (anything) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func liftLimit(ctx context.Context) {
	GinkgoHelper()
	most := int32(10000)
	Expect(h.Client.Create(ctx, &v1alpha1.Guardrail{ObjectMeta: named("", "lifted"), Spec: v1alpha1.GuardrailSpec{
		Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: &most},
	}})).To(Succeed())
}

var dryRun = client.DryRunAll
