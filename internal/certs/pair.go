package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// clockSkew is how far an API server's clock may be behind ours and still accept a fresh certificate of ours.
const clockSkew = 5 * time.Minute

// pair is a certificate with its key, as text and parsed. A CA that is somebody else's has no key, and may be several.
type pair struct {
	certPEM, keyPEM []byte
	// certs begin with the certificate itself.
	certs []*x509.Certificate
	// tls is what a server serves; without a key it is empty.
	tls tls.Certificate
}

// readPair parses a certificate and, where there is to be one, its key, and checks that they belong together.
func readPair(certPEM, keyPEM []byte, keyed bool) (*pair, error) {
	p := &pair{certPEM: certPEM, keyPEM: keyPEM}
	var err error
	if keyed {
		if p.tls, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
			return nil, err
		}
	}
	p.certs, err = cert.ParseCertsPEM(certPEM)
	return p, err
}

// offer is a certificate that could be served, with the CA that signed it.
type offer struct{ leaf, ca *pair }

// acceptable says why an API server that trusts the CA would refuse the certificate at some host, if it would.
func (o *offer) acceptable(hosts []string, now time.Time) error {
	verify := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, authority := range o.ca.certs {
		verify.Roots.AddCert(authority)
	}
	for _, intermediate := range o.leaf.certs[1:] {
		verify.Intermediates.AddCert(intermediate)
	}
	if _, err := o.leaf.certs[0].Verify(verify); err != nil {
		return err
	}
	return o.leaf.covers(hosts)
}

// newAuthority makes a CA whose certificate is valid for life from now.
func newAuthority(now time.Time, life time.Duration) (*pair, error) {
	template := x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("autohealer-webhook-ca@%d", now.Unix())},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return sign(&template, nil)
}

// issue makes a serving certificate for hosts (DNS names and IP addresses), valid for life from now but never longer
// than the CA that p is.
func (p *pair) issue(now time.Time, life time.Duration, hosts []string) (*offer, error) {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: "autohealer-webhook"},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // it asks Envoys, too
	}
	if template.NotAfter.After(p.notAfter()) {
		template.NotAfter = p.notAfter()
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	leaf, err := sign(&template, p)
	return &offer{leaf: leaf, ca: p}, err
}

// sign makes a key for the template and has the CA sign it; without a CA the certificate signs itself.
func sign(template *x509.Certificate, ca *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	parent, signer := template, crypto.PrivateKey(key)
	if ca != nil {
		parent, signer = ca.certs[0], ca.tls.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return readPair(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), keyPEM, true)
}

// foreign says that a CA is somebody else's, whose key nobody here has.
func (p *pair) foreign() bool { return len(p.keyPEM) == 0 }

// same says whether another one, which may be nil, has the same certificates.
func (p *pair) same(other *pair) bool {
	return other != nil && slices.EqualFunc(p.certs, other.certs, (*x509.Certificate).Equal)
}

func (p *pair) notAfter() time.Time { return p.certs[0].NotAfter }

// due says whether a certificate that was made for life is past two thirds of it.
func (p *pair) due(now time.Time, life time.Duration) bool {
	return !now.Before(p.notAfter().Add(-life / 3))
}

// covers gives an error unless the certificate is valid for all hosts.
func (p *pair) covers(hosts []string) error {
	for _, host := range hosts {
		if err := p.certs[0].VerifyHostname(host); err != nil {
			return err
		}
	}
	return nil
}

// hosts that the certificate is valid for.
func (p *pair) hosts() []string {
	hosts := slices.Clone(p.certs[0].DNSNames)
	for _, ip := range p.certs[0].IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
