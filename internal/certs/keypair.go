package certs

import (
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
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// clockSkew is how far an API server's clock may be behind ours and still accept a fresh certificate.
const clockSkew = 5 * time.Minute

// keyPair is a certificate with its private key.
type keyPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a CA whose certificate is valid for life from now.
func newAuthority(now time.Time, life time.Duration) (keyPair, error) {
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
func (p keyPair) issue(now time.Time, life time.Duration, hosts []string) (keyPair, error) {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: "autohealer-webhook"},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // it asks Envoys, too
	}
	if template.NotAfter.After(p.cert.NotAfter) {
		template.NotAfter = p.cert.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(&template, &p)
}

// sign makes a key for the template and has the CA sign it; without a CA the certificate signs itself.
func sign(template *x509.Certificate, ca *keyPair) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("generate key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return keyPair{}, fmt.Errorf("draw serial number: %w", err)
	}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign certificate: %w", err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return keyPair{}, fmt.Errorf("read back signed certificate: %w", err)
	}
	return keyPair{cert: signed, key: key}, nil
}

// covers says whether the certificate is valid for all hosts.
func (p keyPair) covers(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool { return p.cert.VerifyHostname(host) != nil })
}

// hosts that the certificate is valid for.
func (p keyPair) hosts() []string {
	hosts := slices.Clone(p.cert.DNSNames)
	for _, ip := range p.cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

func (p keyPair) expired(now time.Time) bool { return expired(p.cert, now) }

func (p keyPair) tlsCertificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

// encode gives the PEM text of certificate and key.
func (p keyPair) encode() (certPEM, keyPEM []byte, err error) {
	if certPEM, err = cert.EncodeCertificates(p.cert); err != nil {
		return nil, nil, fmt.Errorf("encode certificate: %w", err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(p.key); err != nil {
		return nil, nil, fmt.Errorf("encode private key: %w", err)
	}
	return certPEM, keyPEM, nil
}

// decode reads what encode wrote and checks that the key is the certificate's.
func decode(certPEM, keyPEM []byte) (keyPair, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return keyPair{}, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return keyPair{}, errors.New("private key is not ECDSA")
	}
	return keyPair{cert: pair.Leaf, key: key}, nil
}
