package runbooks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/keyutil"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// issuer signs serving certificates for the loopback address.
type issuer struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newIssuer() issuer {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an organisation's CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return issuer{key, certificate}
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue writes a pair of files that holds for so long.
func (i issuer) issue(folder string, life time.Duration) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.certificate, &key.PublicKey, i.key)
	Expect(err).NotTo(HaveOccurred())
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(folder, "tls.key"), private, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "tls.crt"), encode(der), 0o600)).To(Succeed())
}

// certificateLeft is for how long the manager's certificate still holds, by its metric and as the alert counts.
func certificateLeft(ctx context.Context) (time.Duration, error) {
	expiry, err := value(ctx, "autohealer_webhook_certificate_expiry_timestamp_seconds")
	return time.Until(time.Unix(int64(expiry), 0)), err
}

const fortnight = 14 * 24 * time.Hour

var _ = Describe("docs/runbooks, of the installation", Ordered, ContinueOnFailure, func() {
	It("certificate-expiring.md", func(ctx SpecContext) {
		Eventually(certificateLeft).WithContext(ctx).Should(BeNumerically(">", fortnight))
		ca, folder := newIssuer(), GinkgoT().TempDir()
		ca.issue(folder, 10*24*time.Hour)
		kubectl(ctx, "-n", harness.Namespace, "patch", "secret", "autohealer-webhook-cert", "--type=merge", "-p", `{"data":{"trusted-ca.crt":"`+base64.StdEncoding.EncodeToString(encode(ca.certificate.Raw))+`"}}`)
		Eventually(func() string {
			return kubectl(ctx, "get", "validatingwebhookconfiguration", "autohealer", "-o", "go-template={{range .webhooks}}{{.clientConfig.caBundle | base64decode}}{{end}}")
		}).WithContext(ctx).Should(ContainSubstring(string(encode(ca.certificate.Raw))), "docs/how-to/certificates.md: Switch")

		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed(), "it waits until API servers know its CA again")
			expectSound(ctx)
		})
		Expect(h.StartManager(ctx, "--cert-provider=files", "--cert-dir="+folder)).To(Succeed())
		Expect(certificateLeft(ctx)).To(BeNumerically("<", fortnight))
		expectPage(ctx, "certificate-expiring.md", check)
		ca.issue(folder, 90*24*time.Hour)
		Eventually(certificateLeft).WithContext(ctx).Should(BeNumerically(">", fortnight), "no restart is needed")
		expectSound(ctx)
	})

	It("second-installation.md", func(ctx SpecContext) {
		const other = "other"
		kubectl(ctx, "create", "namespace", other)
		kubectl(ctx, "create", "serviceaccount", "-n", other, harness.ServiceAccount)
		kubectl(ctx, "create", "clusterrolebinding", other, "--clusterrole=cluster-admin", "--serviceaccount="+other+":"+harness.ServiceAccount)
		Expect(h.Deploy(ctx, other)).To(Succeed())
		account, err := h.ServiceAccountKubeconfig(ctx, other, harness.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		brief, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		var second cluster.Component = "second"
		Expect(h.StartReplica(brief, second, "--kubeconfig="+account, "--namespace="+other)).NotTo(Succeed(), "it must not get ready")
		Eventually(h.Scrape).WithContext(ctx).WithArguments(second, token).Should(ContainSubstring("\nautohealer_installation_conflict 1\n"))
		series(ctx, "autohealer_installation_conflict 0")
		expectWholePage(ctx, "second-installation.md")
		Expect(h.StopComponent(second)).To(Succeed())
		kubectl(ctx, "delete", "namespace", other)
		kubectl(ctx, "delete", "clusterrolebinding", other)
		expectSound(ctx)
	})
})
