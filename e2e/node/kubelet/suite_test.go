//go:build linux

// Package kubelet tests Autohealer with a real kubelet: what it reports of crash loops, and how it carries out evictions.
// kwok only plays what this package found a kubelet to do.
package kubelet

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/node"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

func TestKubelet(t *testing.T) {
	if why := node.Unavailable(); why != "" {
		t.Skip(why)
	}
	suite.Run(t, "With a real kubelet")
}

var (
	h    *harness.Harness
	real *node.Node
	core kubernetes.Interface
)

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	h, err = harness.Start(ctx, harness.Options{
		Out:         GinkgoWriter,
		ManagerArgs: []string{"--leader-elect=false"}, // one manager needs no election
		Cluster:     cluster.Options{ExtraArgs: map[cluster.Component][]string{cluster.Kwok: node.BesideKwok}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	core, err = kubernetes.NewForConfig(h.Config)
	Expect(err).NotTo(HaveOccurred())
	_, err = node.AddBallast(ctx, h.Cluster)
	Expect(err).NotTo(HaveOccurred())
	real, err = node.Start(ctx, h.Cluster, node.Options{Labels: map[string]string{corev1.LabelTopologyZone: "zone-real"}, Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(real.Stop()).To(Succeed()) })
	Expect(h.StartManager(ctx)).To(Succeed())
})

var _ = AfterEach(func() {
	if CurrentSpecReport().Failed() {
		AddReportEntry("the kubelet's log ends with", h.LogTail(real.Kubelet, 60))
	}
})

// underOath has an oracle judge all that happens to nodes and ConditionSets from now on to the end of the spec. Of WeederConfigs
// it knows nothing: to it each pod that the manager deletes is one that no policy asks for.
func underOath(ctx context.Context) {
	GinkgoHelper()
	witness, err := oracle.Attach(ctx, h.Cluster, oracle.Options{DoubtGrace: 25e9}) // a silent watch is believed for 20 s
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(witness.Stop)
	DeferCleanup(func(ctx context.Context) {
		Expect(witness.Check(ctx)).To(BeEmpty(), "the oracle saw invariants broken")
	})
}

// newNamespace is one for a spec; it goes with it.
func newNamespace(ctx context.Context, name string) string {
	GinkgoHelper()
	_, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(core.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
	Eventually(func() error {
		_, err := core.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}).Should(Succeed(), "pods need a service account")
	return name
}
