package outlierpolicy

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// carelessManager builds a manager without the rule that a longest ejection is no shorter than the first.
func carelessManager(ctx context.Context) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	catalogue := filepath.Join(h.Root(), "internal", "guard", "catalog", "outlierpolicy.yaml")
	text, err := os.ReadFile(catalogue)
	Expect(err).NotTo(HaveOccurred())
	without := regexp.MustCompile(`(?s)- id: outlierpolicy/max-below-base\n.*?(\n- id: )`).ReplaceAll(text, []byte("$1"))
	Expect(without).NotTo(HaveLen(len(text)))
	Expect(os.WriteFile(filepath.Join(dir, "catalogue.yaml"), without, 0o600)).To(Succeed())
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{catalogue: filepath.Join(dir, "catalogue.yaml")}})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)).To(Succeed())
	build := exec.CommandContext(ctx, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "manager"), "./cmd")
	build.Dir = h.Root()
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return filepath.Join(dir, "manager")
}

var _ = Describe("What Envoy refuses", Serial, func() {
	It("is in the policy's status, in Envoy's words, and keeps nothing else from Envoy", func(ctx SpecContext) {
		By("going past the rules: a manager without one of them, and no admission policy")
		program := h.Program
		h.Program = carelessManager(ctx)
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		_, err := h.Kubectl(ctx, "delete", "validatingadmissionpolicybinding", "autohealer-outlierpolicy")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			h.Program = program
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.Install(ctx)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed())
		})
		Expect(h.StartManager(ctx)).To(Succeed())

		refused, other := serve(ctx, "nacked", 2), serve(ctx, "acked", 1)
		refused.detect(ctx, "consecutiveServerErrors: 21, maxEjectionPercent: 50")
		other.detect(ctx, "consecutiveServerErrors: 31, maxEjectionPercent: 50")
		e := proxy(ctx, edge, clients, refused.cluster())
		Eventually(e.Threshold).WithArguments(refused.cluster()).Should(Equal(21))
		Eventually(condition(ctx, "nacked", "web", "Programmed")).Should(Equal("True Programmed"))

		By("applying what Envoy refuses")
		Eventually(func() error {
			_, err := h.Apply(ctx, strings.NewReplacer("NAMESPACE", "nacked").Replace(`
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: web, namespace: NAMESPACE}
spec:
  targetRefs: [{group: "", kind: Service, name: web}]
  outlierDetection: {consecutiveServerErrors: 22, maxEjectionPercent: 50, baseEjectionTime: 1m, maxEjectionTime: 30s}
`))
			return err
		}).Should(Succeed(), "the API server's policy goes with its binding")
		Eventually(condition(ctx, "nacked", "web", "Programmed")).Should(Equal("False Nacked"))
		op, err := policyOf(ctx, "nacked", "web")
		Expect(err).NotTo(HaveOccurred())
		Expect(meta.FindStatusCondition(op.Status.Ancestors[0].Conditions, "Programmed").Message).To(
			And(ContainSubstring("nacked/web/80"), ContainSubstring("max_ejection_time")), "Envoy's words")
		Expect(e.Threshold(refused.cluster())).To(Equal(21), "Envoy goes on with what it had")
		Expect(e.Statuses(refused.cluster(), 4)).To(Equal(map[int]int{200: 4}))

		By("editing another policy")
		other.detect(ctx, "consecutiveServerErrors: 32, maxEjectionPercent: 50")
		Eventually(e.Threshold).WithArguments(other.cluster()).Should(Equal(32))
		Eventually(condition(ctx, "acked", "web", "Programmed")).Should(Equal("True Programmed"))

		By("mending it")
		refused.detect(ctx, "consecutiveServerErrors: 23, maxEjectionPercent: 50")
		Eventually(e.Threshold).WithArguments(refused.cluster()).Should(Equal(23))
		Eventually(condition(ctx, "nacked", "web", "Programmed")).Should(Equal("True Programmed"))
	}, NodeTimeout(10*harness.Within))
})
