package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const webhookHost = "autohealer-webhook.autohealer-system.svc"

// signer is a CA of cert-manager's. Unlike ours, it doesn't date certificates back.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(name string, now time.Time) signer {
	return signer{}.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now, NotAfter: now.Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// sign has the signer sign; the zero signer has the template sign itself.
func (s signer) sign(template x509.Certificate) signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must(err)
	parent, parentKey := s.cert, s.key
	if parent == nil {
		parent, parentKey = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), parentKey)
	must(err)
	signed, err := x509.ParseCertificate(der)
	must(err)
	return signer{cert: signed, key: key}
}

// leaf is what cert-manager issues for the webhook, for 90 days.
func (s signer) leaf(now time.Time, hosts ...string) signer {
	if len(hosts) == 0 {
		hosts = []string{webhookHost}
	}
	return s.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: "autohealer-webhook"}, NotBefore: now, NotAfter: now.Add(90 * day), DNSNames: hosts,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// data is what cert-manager puts into the Secret.
func (s signer) data(authority *x509.Certificate) map[string][]byte {
	certPEM, err := cert.EncodeCertificates(s.cert)
	must(err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(s.key)
	must(err)
	caPEM, err := cert.EncodeCertificates(authority)
	must(err)
	return map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": caPEM}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// issue has cert-manager issue a certificate by its CA, as a renewal does.
func (w *world) issue() signer {
	leaf := w.authority.leaf(w.clock.Now())
	w.putIssued(leaf.data(w.authority.cert))
	return leaf
}

// renewAuthority gives cert-manager another CA; what it has issued stays.
func (w *world) renewAuthority(name string) { w.authority = newSigner(name, w.clock.Now()) }

// putIssued writes the Secret that cert-manager writes.
func (w *world) putIssued(data map[string][]byte) {
	ctx := context.Background()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "autohealer-system", Name: "autohealer-webhook-cert-issued"}}
	err := w.client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	secret.Data = data
	if apierrors.IsNotFound(err) {
		must(w.client.Create(ctx, secret))
		return
	}
	must(err)
	must(w.client.Update(ctx, secret))
}

// putRecord is what a person puts into the record's Secret.
func (w *world) putRecord(key string, value []byte) {
	ctx := context.Background()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "autohealer-system", Name: "autohealer-webhook-cert"}}
	err := w.client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[key] = value
	if apierrors.IsNotFound(err) {
		must(w.client.Create(ctx, secret))
		return
	}
	must(err)
	must(w.client.Update(ctx, secret))
}

// asker is one more manager in this world, which asks cert-manager.
func (w *world) asker() *CertManager {
	m := NewCertManager(Options{
		Namespace: "autohealer-system", SecretName: "autohealer-webhook-cert", WebhookConfiguration: "autohealer",
		Hosts: []string{webhookHost}, Clock: w.clock,
	}, Issuer{})
	m.client, m.reader, m.mapper = w.client, w.client, installed(true)
	return m
}

// installed is a mapper that knows cert-manager's kinds, or doesn't.
func installed(there bool) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{cmv1.SchemeGroupVersion})
	if there {
		mapper.Add(cmv1.SchemeGroupVersion.WithKind("Certificate"), meta.RESTScopeNamespace)
	}
	return mapper
}
