package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// trustedKey of the record's Secret has further CAs to trust, put there by people: those of a certificate in files, while
// replicas that serve it and replicas that don't run side by side. Managers publish them and never change the key.
const trustedKey = "trusted-ca.crt"

// section is what one provider keeps in the record, by key. Each provider writes its own section alone and publishes the CAs of
// all sections: replicas with different providers serve side by side while a Deployment rolls from one to the other.
type section struct {
	leafCert, leafKey string
	// ca signed the leaf. The key is empty where somebody else has it.
	caCert, caKey string
	// next is the CA to come: trusted by API servers, and nothing is served yet that it signed.
	nextCert, nextKey string
	// previous CAs are trusted as long as they are valid, because a replica that lags may still serve their leaf.
	previous string
}

// The sections. The first one's first three keys are the usual ones, so that other tools can read them.
var (
	selfSignedSection = section{
		leafCert: "tls.crt", leafKey: "tls.key", caCert: "ca.crt", caKey: "ca.key",
		nextCert: "next-ca.crt", nextKey: "next-ca.key", previous: "previous-ca.crt",
	}
	certManagerSection = section{
		leafCert: "cert-manager-tls.crt", leafKey: "cert-manager-tls.key", caCert: "cert-manager-ca.crt",
		nextCert: "cert-manager-next-ca.crt", previous: "cert-manager-previous-ca.crt",
	}
	sections = []section{selfSignedSection, certManagerSection}
)

func (p section) authorities() []string { return []string{p.caCert, p.nextCert, p.previous} }

func (p section) keys() []string {
	return append(p.authorities(), p.leafCert, p.leafKey, p.caKey, p.nextKey)
}

// in says whether data has something of the section.
func (p section) in(data map[string][]byte) bool {
	return slices.ContainsFunc(p.keys(), func(key string) bool { return len(data[key]) > 0 })
}

// replace puts the section's new content into the record's data and leaves the rest alone.
func (p section) replace(data, content map[string][]byte) map[string][]byte {
	replaced := maps.Clone(data)
	if replaced == nil {
		replaced = map[string][]byte{}
	}
	for _, key := range p.keys() {
		delete(replaced, key)
	}
	maps.Copy(replaced, content)
	return replaced
}

// others are the CAs that the record has beside the section's: somebody may be serving what they signed.
func (p section) others(data map[string][]byte) []*x509.Certificate {
	return certificates(p.replace(data, nil), trustKeys())
}

// trustKeys of the record have the CAs to trust.
func trustKeys() []string {
	keys := []string{trustedKey}
	for _, p := range sections {
		keys = append(keys, p.authorities()...)
	}
	return keys
}

// bundle is the PEM text of all CAs to trust, and their number. It depends on the record alone, not on the time or on who
// asks, so that replicas don't overwrite each other. They are sorted by age whatever their role, so that a change of roles
// doesn't rewrite the bundle.
func bundle(data map[string][]byte) (text []byte, count int, err error) {
	all := certificates(data, trustKeys())
	slices.SortFunc(all, func(a, b *x509.Certificate) int {
		if c := a.NotBefore.Compare(b.NotBefore); c != 0 {
			return c
		}
		return bytes.Compare(a.Raw, b.Raw)
	})
	all = slices.CompactFunc(all, (*x509.Certificate).Equal)
	if text, err = cert.EncodeCertificates(all...); err != nil {
		return nil, 0, fmt.Errorf("encode CA bundle: %w", err)
	}
	return text, len(all), nil
}

// certificates parses what the keys hold. What can't be read is left out: another provider or a person put it there, and
// it must not keep this one from working. A provider checks its own section by itself.
func certificates(data map[string][]byte, keys []string) []*x509.Certificate {
	var all []*x509.Certificate
	for _, key := range keys {
		parsed, err := cert.ParseCertsPEM(data[key])
		if err == nil {
			all = append(all, parsed...)
		}
	}
	return all
}

// withoutDeadSections drops the sections of other providers whose CAs have all expired, and says whether there were any. This
// provider drops its own expired CAs one by one.
func (p section) withoutDeadSections(data map[string][]byte, now time.Time) (map[string][]byte, bool) {
	dropped := false
	for _, other := range sections {
		if other == p || !other.in(data) {
			continue
		}
		alive := slices.ContainsFunc(certificates(data, other.authorities()), func(c *x509.Certificate) bool { return !expired(c, now) })
		if !alive {
			data, dropped = other.replace(data, nil), true
		}
	}
	return data, dropped
}

// typed gives a new Secret the type that its content has, and keeps the keys in that an old one's type asks for.
func typed(secret *corev1.Secret, data map[string][]byte) map[string][]byte {
	if secret.Type == "" && len(data[corev1.TLSCertKey]) > 0 {
		secret.Type = corev1.SecretTypeTLS
	}
	if secret.Type == corev1.SecretTypeTLS {
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if data[key] == nil {
				data[key] = []byte{}
			}
		}
	}
	return data
}

func expired(c *x509.Certificate, now time.Time) bool { return !now.Before(c.NotAfter) }

// containsAll says whether each of some certificates is among all. Of none, it isn't: nothing vouches for nothing.
func containsAll(all, some []*x509.Certificate) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(c *x509.Certificate) bool {
		return !slices.ContainsFunc(all, c.Equal)
	})
}
