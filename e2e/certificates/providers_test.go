package certificates

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
)

const issuedSecret = "autohealer-webhook-cert-issued"

// The story of one cluster: each spec goes on where the one before has ended.
var _ = Describe("The serving certificate", Ordered, func() {
	stopCertManager := func() {}
	AfterAll(func() { stopCertManager() })

	It("is the managers' own until cert-manager is there, and without it a new manager says what to do and isn't ready", func(ctx SpecContext) {
		managers.start(ctx)
		managers.start(ctx)
		Eventually(ctx, func() error { return request(ctx, "first") }).Should(Succeed())
		t := startTraffic()
		handOver(ctx)
		name, ready := managers.begin(ctx, "--cert-provider=cert-manager")
		Eventually(ctx, func() (string, error) {
			text, err := os.ReadFile(h.Log(name))
			return string(text), err
		}).Should(And(ContainSubstring("install cert-manager, https://cert-manager.io/docs/installation/"), ContainSubstring("--cert-provider=self-signed")))
		Consistently(ctx, ready, "1s").ShouldNot(Receive())

		By("installing cert-manager")
		kubectl(ctx, "apply", "--server-side", "-f", definitions(ctx))
		stopCertManager = startCertManager(ctx)
		Eventually(ctx, ready, time.Minute).Should(Receive(BeNil()), "it should take it from there, without a restart")
		t.expectNoLoss(ctx, 200)
		Expect(authorities(ctx)).To(Equal(2), "those of both providers are served")
	}, NodeTimeout(specTime))

	It("comes from cert-manager after a rolling restart", func(ctx SpecContext) {
		t := startTraffic()
		for _, name := range managers.names()[:2] { // the third is from cert-manager already
			managers.end(ctx, name)
		}
		managers.start(ctx, "--cert-provider=cert-manager")
		issued, err := issuedSerial(ctx, issuedSecret)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, served).Should(Equal(issued))
		t.expectNoLoss(ctx, 100)
		Expect(may(ctx, "patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "autohealer")).To(BeFalse(), "the cainjector publishes")
	}, NodeTimeout(specTime))

	It("is followed when cert-manager renews it", func(ctx SpecContext) {
		t := startTraffic()
		renew(ctx, "autohealer-webhook")
		issued, err := issuedSerial(ctx, issuedSecret)
		Expect(err).NotTo(HaveOccurred())
		Consistently(ctx, served, "2s").ShouldNot(Equal(issued), "an API server whose clock is behind would refuse it")
		Eventually(ctx, served).Should(Equal(issued))
		t.expectNoLoss(ctx, 200)
	}, NodeTimeout(specTime))

	It("isn't served before its CA is trusted, when cert-manager has a new one, not even after a restart", func(ctx SpecContext) {
		before, err := served(ctx)
		Expect(err).NotTo(HaveOccurred())
		trusted, err := authorities(ctx)
		Expect(err).NotTo(HaveOccurred())
		t := startTraffic()
		renew(ctx, "autohealer-webhook-ca")
		renew(ctx, "autohealer-webhook")
		issued, err := issuedSerial(ctx, issuedSecret)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, authorities).Should(Equal(trusted + 1))
		Expect(served(ctx)).To(Equal(before))
		managers.roll(ctx, "--cert-provider=cert-manager")
		Eventually(ctx, served).Should(Equal(issued))
		Expect(authorities(ctx)).To(Equal(trusted+1), "the old CA stays trusted")
		t.expectNoLoss(ctx, 200)
	}, NodeTimeout(specTime))

	It("is trusted again after somebody took the CA bundle away", func(ctx SpecContext) {
		published, err := caBundle(ctx)
		Expect(err).NotTo(HaveOccurred())
		setBundle(ctx, nil)
		Eventually(ctx, caBundle).Should(Equal(published))
		Eventually(ctx, func() error { return request(ctx, "mended") }).Should(Succeed())
	})

	It("goes to files and back to the managers' own, with the files' CA put beside the others meanwhile", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
		trusted, err := authorities(ctx)
		Expect(err).NotTo(HaveOccurred())
		added, err := certutil.ParseCertsPEM(certificate) // its own certificate and its CA's
		Expect(err).NotTo(HaveOccurred())

		t := startTraffic()
		By("trusting the files' CA before any manager serves them")
		patchRecord(ctx, fmt.Sprintf(`{"data":{"trusted-ca.crt":%q}}`, base64.StdEncoding.EncodeToString(certificate)))
		Eventually(ctx, authorities).Should(Equal(trusted + len(added)))
		wait(ctx, settle)
		takeBack(ctx)
		managers.roll(ctx, "--cert-provider=files", "--cert-dir="+dir)
		t.expectNoLoss(ctx, 200)

		By("trusting nothing else, as somebody may who stays with files")
		setBundle(ctx, certificate)
		Eventually(ctx, func() error { return request(ctx, "files") }).Should(Succeed())
		t = startTraffic()
		managers.roll(ctx, "--cert-provider=self-signed")
		patchRecord(ctx, `{"data":{"trusted-ca.crt":null}}`)
		Eventually(ctx, authorities).Should(Equal(trusted))
		t.expectNoLoss(ctx, 200)
	}, NodeTimeout(specTime))

	It("is renewed by the managers themselves when most of its life is over, and so is their CA", func(ctx SpecContext) {
		month := time.Now().Add(30 * 24 * time.Hour)
		kept := readSelfSigned(ctx)
		trusted, err := authorities(ctx)
		Expect(err).NotTo(HaveOccurred())

		t := startTraffic()
		By("renewing the certificate")
		kept.age(ctx, "tls.crt", kept.leaf)
		Eventually(func(g Gomega, ctx context.Context) {
			until, by := ends(ctx)
			g.Expect(until).To(BeTemporally(">", month))
			g.Expect(by).To(Equal(kept.ca.Leaf.Subject.CommonName))
		}).WithContext(ctx).Should(Succeed())
		Expect(authorities(ctx)).To(Equal(trusted))

		By("renewing the CA")
		kept.age(ctx, "ca.crt", kept.ca)
		Eventually(ctx, authorities).Should(Equal(trusted+1), "the next CA is trusted")
		Expect(readSelfSigned(ctx).leaf.Leaf.Issuer.CommonName).To(Equal(kept.ca.Leaf.Subject.CommonName), "before it signs")
		Eventually(func(g Gomega, ctx context.Context) {
			until, by := ends(ctx)
			g.Expect(until).To(BeTemporally(">", month))
			g.Expect(by).NotTo(Or(BeEmpty(), Equal(kept.ca.Leaf.Subject.CommonName)))
		}).WithContext(ctx).Should(Succeed())
		Expect(authorities(ctx)).To(Equal(trusted+1), "the old CA stays trusted")
		t.expectNoLoss(ctx, 200)
	}, NodeTimeout(specTime))

	It("comes from cert-manager where config/certmanager is applied", func(ctx SpecContext) {
		manifests := kubectl(ctx, "kustomize", filepath.Join(h.Root(), "config", "certmanager"))
		Expect(manifests).To(ContainSubstring("- --cert-provider=cert-manager\n"))
		Expect(manifests).NotTo(ContainSubstring("--cert-provider=self-signed"))
		Expect(manifests).To(ContainSubstring("name: autohealer-manager-certificates"))
		Expect(manifests).To(ContainSubstring("    " + injection + ": " + harness.Namespace + "/" + bundleSecret + "\n"))
		Expect(manifests).To(MatchRegexp(`kind: ClusterRole\nmetadata:\n(  .*\n)*  name: autohealer-manager-webhook\nrules: \[\]\n`))
	})

	DescribeTable("needs of the manager's account no more than this", func(ctx SpecContext, allowed bool, verb, group, resource, name string) {
		Expect(may(ctx, verb, group, resource, name)).To(Equal(allowed))
	},
		Entry("it applies its Certificate", true, "patch", "cert-manager.io", "certificates", "autohealer-webhook"),
		Entry("it creates its Certificate", true, "create", "cert-manager.io", "certificates", "autohealer-webhook"),
		Entry("it applies no other Certificate", false, "patch", "cert-manager.io", "certificates", "another"),
		Entry("it creates no other Issuer", false, "create", "cert-manager.io", "issuers", "another"),
		Entry("it deletes nothing", false, "delete", "cert-manager.io", "certificates", "autohealer-webhook"),
		Entry("it reads what is issued", true, "watch", "", "secrets", issuedSecret),
		Entry("it doesn't write that", false, "update", "", "secrets", issuedSecret),
		Entry("it writes the CAs to trust", true, "update", "", "secrets", bundleSecret),
		Entry("it publishes what it makes itself", true, "patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "autohealer"),
		Entry("it doesn't read the CA's key", false, "get", "", "secrets", "autohealer-webhook-ca"),
	)
})

// may says what the manager's account may do.
func may(ctx context.Context, verb, group, resource, name string) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: harness.Username,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: harness.Namespace, Verb: verb, Group: group, Resource: resource, Name: name,
		},
	}}
	Expect(c.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// wait lets time pass in which nothing can be looked at.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func patchRecord(ctx context.Context, patch string) {
	GinkgoHelper()
	kubectl(ctx, "patch", "secret", "autohealer-webhook-cert", "-n", harness.Namespace, "--type=merge", "-p", patch)
}

func setBundle(ctx context.Context, bundle []byte) {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(c.Get(ctx, types.NamespacedName{Name: "autohealer"}, config)).To(Succeed())
	before := config.DeepCopy()
	config.Webhooks[0].ClientConfig.CABundle = bundle
	Expect(c.Patch(ctx, config, client.StrategicMergeFrom(before))).To(Succeed())
}
