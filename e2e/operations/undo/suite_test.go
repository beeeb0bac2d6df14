// Package undo tests that people can take back what was done, and that nothing stays behind: with the plugin's own binary,
// under the roles that are shipped for it, while the manager works, is stopped, and when Autohealer's kinds are gone.
package undo

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

func TestUndo(t *testing.T) {
	suite.Run(t, "Undo")
}

const (
	repelKey  = world.RepelKey
	evictKey  = world.EvictKey
	namespace = world.Namespace
)

type said = world.Said

var (
	h *world.World
	// operator is the kubeconfig of an account with the roles for undo, and for the kind that is checked, and nothing else.
	operator string
)

var _ = suite.OfFailures(func() *harness.Harness { return h.Started() })

var _ = BeforeSuite(func(ctx SpecContext) {
	h = world.Start(ctx)
	operator = h.Account(ctx, "operator", "autohealer-operator", "autohealer-workload-operator", "gadget-checks")
	h.CreatePolicies(ctx)
})

func plugin(ctx context.Context, kubeconfig string, args ...string) said {
	GinkgoHelper()
	return h.Plugin(ctx, kubeconfig, args...)
}

// again undoes all, and gives the records that are left: ReplicaSets get copies of their Deployment's annotations, at any time.
func again(ctx context.Context, kubeconfig string) ([]string, error) {
	GinkgoHelper()
	Expect(plugin(ctx, kubeconfig, "undo", "--all").Code).To(BeZero())
	return h.Records(ctx)
}
