package certificates

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// selfSigned is what the managers keep of their own: a CA, and what it signed last.
type selfSigned struct{ ca, leaf *tls.Certificate }

func readSelfSigned(ctx context.Context) selfSigned {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: "autohealer-webhook-cert"}, secret)).To(Succeed())
	pair := func(name string) *tls.Certificate {
		pair, err := tls.X509KeyPair(secret.Data[name+".crt"], secret.Data[name+".key"])
		Expect(err).NotTo(HaveOccurred())
		return &pair
	}
	return selfSigned{ca: pair("ca"), leaf: pair("tls")}
}

// age has a certificate of the managers' end tomorrow, as if most of its life were over: one with the same key in its place.
func (s selfSigned) age(ctx context.Context, key string, old *tls.Certificate) {
	GinkgoHelper()
	aged := *old.Leaf
	aged.NotAfter = time.Now().Add(24 * time.Hour)
	var err error
	aged.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &aged, s.ca.Leaf, old.Leaf.PublicKey, s.ca.PrivateKey)
	Expect(err).NotTo(HaveOccurred())
	signed, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	text, err := certutil.EncodeCertificates(signed)
	Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: "autohealer-webhook-cert"}, secret)).To(Succeed())
	before := secret.DeepCopy()
	secret.Data[key] = text
	Expect(c.Patch(ctx, secret, client.MergeFrom(before))).To(Succeed())
}

// ends is when what is served ends, and who signed that; the zero time while the managers serve different ones, or another
// than they keep.
func ends(ctx context.Context) (until time.Time, by string) {
	GinkgoHelper()
	kept := readSelfSigned(ctx)
	serial, err := served(ctx)
	Expect(err).NotTo(HaveOccurred())
	if serial != kept.leaf.Leaf.SerialNumber.String() {
		return time.Time{}, ""
	}
	return kept.leaf.Leaf.NotAfter, kept.leaf.Leaf.Issuer.CommonName
}
