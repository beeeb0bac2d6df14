package certificates

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const certManager = cluster.Component("certmanager")

// startCertManager starts cert-manager's own controllers where they have been built, else the stand-in. They outlive the
// spec: stop ends the stand-in, and the cluster ends with the others.
func startCertManager(ctx context.Context) (stop func()) {
	GinkgoHelper()
	path := filepath.Join(h.BinDir, string(certManager))
	if _, err := os.Stat(path); err == nil {
		AddReportEntry("cert-manager", "its own controllers")
		running := func(context.Context) error { return nil }
		Expect(h.AddProgram(certManager, path, []string{h.Kubeconfig}, running)).To(Succeed())
		Expect(h.StartComponent(ctx, certManager)).To(Succeed())
		return func() {}
	}
	AddReportEntry("cert-manager", "a stand-in")
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		signUntil(running)
	}()
	return func() { cancel(); <-ended }
}

// injection is the annotation by which config/certmanager asks the cainjector, and bundleSecret what it names.
const (
	injection    = "cert-manager.io/inject-ca-from-secret"
	bundleSecret = "autohealer-webhook-cert-bundle"
)

// handOver installs what config/certmanager changes: the cainjector publishes, and the manager may not.
func handOver(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "annotate", "validatingwebhookconfiguration", "autohealer", injection+"="+harness.Namespace+"/"+bundleSecret)
	kubectl(ctx, "patch", "clusterrole", "autohealer-manager-webhook", "--type=json", "-p", `[{"op":"replace","path":"/rules","value":[]}]`)
}

// takeBack installs that as config/default has it.
func takeBack(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "annotate", "validatingwebhookconfiguration", "autohealer", injection+"-")
	kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(h.Root(), "config", "rbac", "manager_role_webhook.yaml"))
}

// inject does what the cainjector does with that annotation, and as its account may: only caBundle.
func inject(ctx context.Context) error {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: "autohealer"}, config); err != nil {
		return err
	}
	if config.Annotations[injection] == "" {
		return nil
	}
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: bundleSecret}, secret)
	if err != nil || secret.Annotations["cert-manager.io/allow-direct-injection"] != "true" {
		return client.IgnoreNotFound(err)
	}
	bundle := secret.Data["ca.crt"]
	if len(bundle) == 0 || bytes.Equal(config.Webhooks[0].ClientConfig.CABundle, bundle) {
		return nil
	}
	before := config.DeepCopy()
	config.Webhooks[0].ClientConfig.CABundle = bundle
	return c.Patch(ctx, config, client.StrategicMergeFrom(before))
}

// signUntil does what cert-manager does with Issuers that sign themselves or with a CA, as far as these tests see it: like
// cert-manager, it doesn't date certificates back, replaces a CA at once and leaves what that signed alone.
func signUntil(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := inject(ctx); err != nil && !errors.Is(err, context.Canceled) {
			GinkgoWriter.Printf("the stand-in for the cainjector: %v\n", err)
		}
		var certificates cmv1.CertificateList
		if err := c.List(ctx, &certificates, client.InNamespace(harness.Namespace)); err != nil {
			continue // the API server may be on its way
		}
		for i := range certificates.Items {
			if err := issue(ctx, &certificates.Items[i]); err != nil && !errors.Is(err, context.Canceled) {
				GinkgoWriter.Printf("the stand-in for cert-manager: %v\n", err)
			}
		}
	}
}

// issue issues a certificate if that is due.
func issue(ctx context.Context, certificate *cmv1.Certificate) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: certificate.Namespace, Name: certificate.Spec.SecretName}}
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	due := slices.ContainsFunc(certificate.Status.Conditions, func(condition cmv1.CertificateCondition) bool {
		return condition.Type == cmv1.CertificateConditionIssuing && condition.Status == cmmeta.ConditionTrue
	})
	if err == nil && !due {
		return nil
	}
	authority, err := issuerOf(ctx, certificate)
	if err != nil {
		return report(ctx, certificate, cmv1.CertificateConditionReady, cmmeta.ConditionFalse, "DoesNotExist", err.Error())
	}
	if secret.Data, err = sign(certificate, authority); err != nil {
		return err
	}
	secret.Type, secret.Labels = corev1.SecretTypeTLS, certificate.Spec.SecretTemplate.Labels
	if secret.ResourceVersion == "" {
		err = c.Create(ctx, secret)
	} else {
		err = c.Update(ctx, secret)
	}
	if err != nil {
		return err
	}
	setCondition(certificate, cmv1.CertificateConditionIssuing, cmmeta.ConditionFalse, "Issued", "issued")
	return report(ctx, certificate, cmv1.CertificateConditionReady, cmmeta.ConditionTrue, "Ready", "issued")
}

func report(ctx context.Context, certificate *cmv1.Certificate, conditionType cmv1.CertificateConditionType, status cmmeta.ConditionStatus, reason, message string) error {
	setCondition(certificate, conditionType, status, reason, message)
	return c.Status().Update(ctx, certificate)
}

func setCondition(certificate *cmv1.Certificate, conditionType cmv1.CertificateConditionType, status cmmeta.ConditionStatus, reason, message string) {
	others := slices.DeleteFunc(certificate.Status.Conditions, func(condition cmv1.CertificateCondition) bool { return condition.Type == conditionType })
	now := metav1.Now()
	certificate.Status.Conditions = append(others, cmv1.CertificateCondition{
		Type: conditionType, Status: status, Reason: reason, Message: message, LastTransitionTime: &now, ObservedGeneration: certificate.Generation,
	})
}

// issuerOf is the CA that signs; nil where the certificate signs itself.
func issuerOf(ctx context.Context, certificate *cmv1.Certificate) (*tls.Certificate, error) {
	issuer := &cmv1.Issuer{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: certificate.Namespace, Name: certificate.Spec.IssuerRef.Name}, issuer); err != nil {
		return nil, err
	}
	if issuer.Spec.SelfSigned != nil {
		return nil, nil //nolint:nilnil // none signs
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: certificate.Namespace, Name: issuer.Spec.CA.SecretName}, secret); err != nil {
		return nil, err
	}
	authority, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	return &authority, err
}

// sign gives the Secret's content.
func sign(certificate *cmv1.Certificate, authority *tls.Certificate) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: certificate.Spec.CommonName}, DNSNames: certificate.Spec.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(certificate.Spec.Duration.Duration), BasicConstraintsValid: true,
	}
	for _, ip := range certificate.Spec.IPAddresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	if template.IsCA = certificate.Spec.IsCA; template.IsCA {
		template.KeyUsage = x509.KeyUsageCertSign
	} else {
		template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if authority == nil {
		parent = signed
	}
	leafPEM, leafErr := certutil.EncodeCertificates(signed)
	caPEM, caErr := certutil.EncodeCertificates(parent)
	keyPEM, keyErr := keyutil.MarshalPrivateKeyToPEM(key)
	return map[string][]byte{"tls.crt": leafPEM, "tls.key": keyPEM, "ca.crt": caPEM}, errors.Join(leafErr, caErr, keyErr)
}

// renew has a certificate issued anew, as `cmctl renew` does, and waits until it has been.
func renew(ctx context.Context, name string) {
	GinkgoHelper()
	certificate := &cmv1.Certificate{}
	key := client.ObjectKey{Namespace: harness.Namespace, Name: name}
	Expect(c.Get(ctx, key, certificate)).To(Succeed())
	before, err := issuedSerial(ctx, certificate.Spec.SecretName)
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() error {
		if err := c.Get(ctx, key, certificate); err != nil {
			return err
		}
		return report(ctx, certificate, cmv1.CertificateConditionIssuing, cmmeta.ConditionTrue, "ManuallyTriggered", "by a test")
	}).Should(Succeed())
	Eventually(ctx, func() (string, error) { return issuedSerial(ctx, certificate.Spec.SecretName) }).ShouldNot(Equal(before))
}

// issuedSerial is the serial number of the certificate that a Secret holds.
func issuedSerial(ctx context.Context, secretName string) (string, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: secretName}, secret)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	parsed, err := certutil.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return "", fmt.Errorf("read Secret %s: %w", secretName, err)
	}
	return parsed[0].SerialNumber.String(), nil
}

// served is the serial number of what every manager in the service serves; "" when they differ.
func served(ctx context.Context) (string, error) {
	var serial string
	for i, b := range managers.all() {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // looks at the certificate only
		connection, err := dialer.DialContext(ctx, "tcp", b.address)
		if err != nil {
			return "", err
		}
		its := connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
		_ = connection.Close()
		if i > 0 && its != serial {
			return "", nil
		}
		serial = its
	}
	return serial, nil
}
