// Package uninstall tests that Autohealer can be removed from a cluster, from every state that it may be in, and that nothing
// of it stays and nothing of others goes: with the plugin's own binary, on a real API server.
package uninstall

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

func TestUninstall(t *testing.T) {
	suite.RunApart(t, "Uninstall", "docs_test|halfway_test|refusal_test")
}

type said = world.Said

// specTime is for one that installs, lets policies act, and uninstalls.
const specTime = 6 * time.Minute

var (
	h *world.World
	// stopped: no manager runs.
	stopped bool
)

var _ = suite.OfFailures(func() *harness.Harness { return h.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	h = world.Start(ctx)
})

// install makes an installation with its Deployment, whose pods only seem to run, and a manager that works.
func install(ctx context.Context) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(h.Root(), "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	Expect(h.Install(ctx)).To(Succeed())
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	start(ctx)
}

// start starts the manager, stop ends it: with it goes the webhook.
func start(ctx context.Context) {
	GinkgoHelper()
	Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
	stopped = false
}

func stop() {
	GinkgoHelper()
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	stopped = true
}

// installAndBreak lets policies act on everything that they can act on.
func installAndBreak(ctx context.Context) {
	GinkgoHelper()
	h.Mend(ctx)
	install(ctx)
	h.CreatePolicies(ctx)
	h.Break(ctx)
	repelled, _ := h.Sick()
	_, err := h.Kubectl(ctx, "annotate", "node", repelled, "autohealer.resourcestack.com/hold-until=2099-01-01T00:00:00Z", "autohealer.resourcestack.com/hold-reason=INC-1")
	Expect(err).NotTo(HaveOccurred())
}

func uninstall(ctx context.Context, args ...string) said {
	GinkgoHelper()
	return h.Plugin(ctx, h.Kubeconfig, append([]string{"uninstall"}, args...)...)
}

func traces(ctx context.Context) ([]string, error) { return world.Traces(ctx, h.Config, h.Client) }

// expectTraces expects these traces, once they can be listed: for a while the API server names kinds whose CRD is gone, and doesn't
// know them.
func expectTraces(ctx context.Context, matcher types.GomegaMatcher) {
	GinkgoHelper()
	var found []string
	Eventually(func() (err error) {
		found, err = traces(ctx)
		return err
	}).Should(Succeed())
	Expect(found).To(matcher)
}

// expectNothingLeft expects that the cluster is as if Autohealer had never been there, but for the binding by which people let it
// probe.
func expectNothingLeft(ctx context.Context) {
	GinkgoHelper()
	Expect(h.Done(ctx)).To(Equal(h.Nothing()), "taints and replicas")
	expectTraces(ctx, Equal([]string{"rolebinding/autohealer-probe-target has our name"}))
	out, err := h.Kubectl(ctx, "get", "-k", filepath.Join(h.Root(), "config", "default"), "--ignore-not-found", "-o", "name")
	if err == nil { // else it doesn't know our kinds
		Expect(out).To(BeEmpty())
	}
	if !stopped {
		stop()
	}
}

var succeeds = SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", HaveSuffix("Nothing of Autohealer is left.\n")))

// node reads one.
func node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	found := &corev1.Node{}
	Expect(h.Client.Get(ctx, client.ObjectKey{Name: name}, found)).To(Succeed())
	return found
}
