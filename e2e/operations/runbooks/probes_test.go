package runbooks

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/operations/world"
)

// targets expects so many of the ProbeConfig's in a state.
func targets(ctx context.Context, state string, n int) {
	GinkgoHelper()
	series(ctx, fmt.Sprintf(`autohealer_probeconfig_targets{namespace="%s",policy="main",state="%s"} %d`, world.Namespace, state, n))
}

// runs are how many runs of probes began within a second of their time, and later.
func runs(ctx context.Context) (soon, late float64, err error) {
	if soon, err = value(ctx, `autohealer_probe_lateness_seconds_bucket{le="1"}`); err != nil {
		return 0, 0, err
	}
	all, err := value(ctx, `autohealer_probe_lateness_seconds_bucket{le="+Inf"}`)
	return soon, all - soon, err
}

// silence is how long ago the manager renewed its Lease.
func silence(ctx context.Context) (time.Duration, error) {
	lease := &coordinationv1.Lease{}
	if err := h.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: "autohealer-manager"}, lease); err != nil {
		return 0, err
	}
	return time.Since(lease.Spec.RenewTime.Time), nil
}

// withoutProcessor stops the manager for so long, and not for so long that it loses its Lease.
func withoutProcessor(ctx context.Context, long time.Duration) {
	GinkgoHelper()
	Eventually(silence).WithContext(ctx).Should(BeNumerically("<", 3*time.Second), "it renews its Lease every two seconds")
	Expect(h.Kill(harness.Manager, syscall.SIGSTOP)).To(Succeed())
	defer func() { Expect(h.Kill(harness.Manager, syscall.SIGCONT)).To(Succeed()) }()
	at, err := silence(ctx)
	Expect(err).NotTo(HaveOccurred())
	Eventually(silence).WithContext(ctx).Should(BeNumerically(">", at+long))
}

var _ = Describe("docs/runbooks, of probes", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) { h.CreateProbed(ctx) })
	AfterAll(func(ctx SpecContext) {
		kubectl(ctx, "-n", world.Namespace, "delete", "probeconfig", "main")
		Eventually(scrape).WithContext(ctx).ShouldNot(ContainSubstring(`autohealer_probeconfig_targets{`))
	})

	It("protection-active.md", func(ctx SpecContext) {
		h.External.BreakNew(faultproxy.Reset)
		h.External.BreakOpen(faultproxy.Reset)
		targets(ctx, "scaled_down", 1)
		expectWholePage(ctx, "protection-active.md")
		h.External.BreakNew(faultproxy.None)
		Eventually(kubectl).WithContext(ctx).WithArguments("-n", world.Namespace, "get", "deployment", "kcm", "-o", "jsonpath={.spec.replicas}").
			WithTimeout(time.Minute+harness.Within).Should(Equal("2"), "a minute after the probe from outside succeeded")
		targets(ctx, "scaled_down", 0)
	})

	It("targets-unusable.md", func(ctx SpecContext) {
		use := func(secret string) {
			kubectl(ctx, "-n", world.Namespace, "patch", "probeconfig", "main", "--type=merge", "-p", `{"spec":{"externalKubeConfigSecretName":"`+secret+`"}}`)
		}
		use("renewed")
		targets(ctx, "unusable", 1)
		expectWholePage(ctx, "targets-unusable.md")
		kubeconfig := kubectl(ctx, "-n", world.Namespace, "get", "secret", "external", "-o", "jsonpath={.data.kubeconfig}")
		_, err := h.Apply(ctx, "{apiVersion: v1, kind: Secret, metadata: {name: renewed, namespace: "+world.Namespace+"}, data: {kubeconfig: "+kubeconfig+"}}")
		Expect(err).NotTo(HaveOccurred())
		targets(ctx, "unusable", 0)
		targets(ctx, "probed", 1)
		use("external")
		kubectl(ctx, "-n", world.Namespace, "delete", "secret", "renewed")
	})

	It("witness-silent.md", func(ctx SpecContext) {
		rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "seed"}, Spec: v1alpha1.GuardrailSpec{Witnesses: []v1alpha1.Witness{
			{Name: "provider", Address: "127.0.0.1:1"}, // nobody listens there
			{Name: "elsewhere", Address: strings.TrimPrefix(h.URL, "https://"), CABundle: string(h.CACert)},
		}}}
		Expect(h.Client.Create(ctx, rail)).To(Succeed())
		series(ctx, `autohealer_witness_up{guardrail="seed",witness="provider"} 0`)
		series(ctx, `autohealer_witness_up{guardrail="seed",witness="elsewhere"} 1`)
		expectWholePage(ctx, "witness-silent.md")
		Expect(h.Client.Delete(ctx, rail)).To(Succeed())
		Eventually(scrape).WithContext(ctx).ShouldNot(ContainSubstring("autohealer_witness_up{"))
	})

	It("probes-late.md", func(ctx SpecContext) {
		inTimeAgain := func(g Gomega) {
			was, _, err := runs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(func(g Gomega) {
				soon, _, err := runs(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(soon).To(BeNumerically(">", was+2), "with a processor it is in time again")
			}).WithContext(ctx).Should(Succeed())
		}
		_, before, err := runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			withoutProcessor(ctx, 3*time.Second)
			inTimeAgain(g)
			_, late, err := runs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(late).To(BeNumerically(">", before), "unless a run was going on meanwhile: it began in time")
		}).WithContext(ctx).Should(Succeed())
		expectWholePage(ctx, "probes-late.md")
		inTimeAgain(Default)
	})
})
