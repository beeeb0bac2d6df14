package admission

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"

	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("The webhook's certificate", func() {
	const warning = "Warning: conditionset/unsupported-condition-type"

	DescribeTable("is trusted again after somebody damaged the CA bundle", func(ctx SpecContext, damage func() []byte) {
		published, err := caBundle(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(published).NotTo(BeEmpty())
		changeWebhook(ctx, func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = damage() })
		Eventually(ctx, caBundle).Should(Equal(published))
		Eventually(ctx, tryingOut(factual)).Should(ContainSubstring(warning))
	},
		Entry("by taking it away", func() []byte { return nil }),
		Entry("by putting another one there", func() []byte { return pair().cert }),
	)

	It("can come from files, whose CA somebody else publishes, and is followed when they change", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		first, second := pair(), pair()
		withoutManager(ctx, func() {
			first.write(dir)
			startManager(ctx, "--cert-provider=files", "--cert-dir="+dir)
			defer func() { Expect(h.StopComponent(harness.Manager)).To(Succeed()) }()

			By("being refused while the API server trusts another CA, with a message that says so")
			output, err := kubectl(ctx, "create", "--dry-run=server", "-f", file(manifest("probe", factual)))
			Expect(err).To(HaveOccurred())
			Expect(output).To(ContainSubstring("certificate signed by unknown authority"))

			By("publishing both CAs, of the old pair and of the new")
			changeWebhook(ctx, func(c *admissionregistrationv1.WebhookClientConfig) {
				c.CABundle = append(append([]byte(nil), first.cert...), second.cert...)
			})
			Eventually(ctx, tryingOut(factual)).Should(ContainSubstring(warning))
			second.write(dir)
			changeWebhook(ctx, func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = second.cert })
			Eventually(ctx, tryingOut(factual)).Should(ContainSubstring(warning))
			Consistently(ctx, caBundle, "1s").Should(Equal(second.cert), "with files, the bundle is not the manager's business")
		})
		Eventually(ctx, tryingOut(factual)).Should(ContainSubstring(warning), "self-signed again")
	}, NodeTimeout(specTime))
})

// certificate is one for 127.0.0.1, with its CA behind it.
type certificate struct{ cert, key []byte }

func pair() certificate {
	GinkgoHelper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	return certificate{cert: cert, key: key}
}

func (c certificate) write(dir string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(dir, "tls.key"), c.key, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), c.cert, 0o600)).To(Succeed())
}

func caBundle(ctx context.Context) ([]byte, error) {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := h.Client.Get(ctx, types.NamespacedName{Name: "autohealer"}, config)
	return config.Webhooks[0].ClientConfig.CABundle, err
}
