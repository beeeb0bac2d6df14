package world

import (
	"context"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/e2e/oracle"
)

// UnderOracle has everything judged that the manager writes, from now until the spec's end.
func (w *World) UnderOracle(ctx context.Context) {
	ginkgo.GinkgoHelper()
	watching, err := oracle.Attach(ctx, w.Cluster, oracle.Options{
		Kinds: []oracle.Kind{oracle.ConditionSets{}, oracle.ProbeConfigs{}, oracle.WeederConfigs{}, oracle.HealthCheckRegistrations{
			Targets: []oracle.Followed{{GroupVersionResource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}, Kind: "Gadget"}},
			Checked: []oracle.Followed{{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap"}},
		}}, Guardrails: true,
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func(ctx ginkgo.SpecContext) { //nolint:contextcheck // it has the spec's own
		defer watching.Stop()
		gomega.Expect(watching.Check(ctx)).To(gomega.BeEmpty(), "what the oracle saw")
	}, ginkgo.NodeTimeout(3*time.Minute))
}
