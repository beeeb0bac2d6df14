package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"

	"time"

	"k8s.io/client-go/util/cert"
)

// Keys of the Secret. The first three are the usual ones, so that other tools can read them.
const (
	leafCertKey = "tls.crt"
	leafKeyKey  = "tls.key"
	caCertKey   = "ca.crt"
	caKeyKey    = "ca.key"
	nextCertKey = "next-ca.crt"
	nextKeyKey  = "next-ca.key"
	previousKey = "previous-ca.crt"
)

// state is what the Secret holds.
type state struct {
	ca   keyPair // signed the leaf
	leaf keyPair // what every replica serves
	// next is the CA to come: trusted by API servers, but signing nothing yet.
	next *keyPair
	// previous CAs are trusted as long as they are valid, because a replica that lags may still serve their leaf.
	previous []*x509.Certificate
}

// authorities are the CAs to trust, oldest first whatever their role, so that a change of roles doesn't rewrite the bundle.
func (s state) authorities() []*x509.Certificate {
	all := append(slices.Clone(s.previous), s.ca.cert)
	if s.next != nil {
		all = append(all, s.next.cert)
	}
	slices.SortFunc(all, func(a, b *x509.Certificate) int {
		if c := a.NotBefore.Compare(b.NotBefore); c != 0 {
			return c
		}
		return bytes.Compare(a.Raw, b.Raw)
	})
	return all
}

// bundle is the PEM text of the CAs to trust.
func (s state) bundle() ([]byte, error) {
	bundle, err := cert.EncodeCertificates(s.authorities()...)
	if err != nil {
		return nil, fmt.Errorf("encode CA bundle: %w", err)
	}
	return bundle, nil
}

// withoutExpired drops the CAs that nobody needs to trust any more, and a next one that came too late.
func (s state) withoutExpired(now time.Time) (state, bool) {
	valid := slices.DeleteFunc(slices.Clone(s.previous), func(c *x509.Certificate) bool { return !now.Before(c.NotAfter) })
	dropped := len(valid) < len(s.previous)
	s.previous = valid
	if s.next != nil && s.next.expired(now) {
		s.next, dropped = nil, true
	}
	return s, dropped
}

// encode gives the Secret's data.
func (s state) encode() (map[string][]byte, error) {
	data := map[string][]byte{}
	put := func(certKey, keyKey string, pair keyPair) error {
		var err error
		data[certKey], data[keyKey], err = pair.encode()
		return err
	}
	if err := put(leafCertKey, leafKeyKey, s.leaf); err != nil {
		return nil, err
	}
	if err := put(caCertKey, caKeyKey, s.ca); err != nil {
		return nil, err
	}
	if s.next != nil {
		if err := put(nextCertKey, nextKeyKey, *s.next); err != nil {
			return nil, err
		}
	}
	if len(s.previous) > 0 {
		previous, err := cert.EncodeCertificates(s.previous...)
		if err != nil {
			return nil, fmt.Errorf("encode previous CAs: %w", err)
		}
		data[previousKey] = previous
	}
	return data, nil
}

// decodeState reads a Secret's data. It is strict: what it can't read or what doesn't fit together is an error, so that
// the caller starts afresh instead of serving something that no API server accepts.
func decodeState(data map[string][]byte) (state, error) {
	var s state
	var err error
	if s.ca, err = decode(data[caCertKey], data[caKeyKey]); err != nil {
		return state{}, fmt.Errorf("read %s and %s: %w", caCertKey, caKeyKey, err)
	}
	if s.leaf, err = decode(data[leafCertKey], data[leafKeyKey]); err != nil {
		return state{}, fmt.Errorf("read %s and %s: %w", leafCertKey, leafKeyKey, err)
	}
	if err := s.leaf.cert.CheckSignatureFrom(s.ca.cert); err != nil {
		return state{}, fmt.Errorf("check that %s is signed by %s: %w", leafCertKey, caCertKey, err)
	}
	if len(data[nextCertKey])+len(data[nextKeyKey]) > 0 {
		next, err := decode(data[nextCertKey], data[nextKeyKey])
		if err != nil {
			return state{}, fmt.Errorf("read %s and %s: %w", nextCertKey, nextKeyKey, err)
		}
		s.next = &next
	}
	if len(data[previousKey]) > 0 {
		if s.previous, err = cert.ParseCertsPEM(data[previousKey]); err != nil {
			return state{}, fmt.Errorf("read %s: %w", previousKey, err)
		}
	}
	return s, nil
}

// replaceData puts our keys into a Secret's data and leaves other people's alone.
func replaceData(old, ours map[string][]byte) map[string][]byte {
	merged := maps.Clone(ours)
	for key, value := range old {
		switch key {
		case leafCertKey, leafKeyKey, caCertKey, caKeyKey, nextCertKey, nextKeyKey, previousKey:
		default:
			merged[key] = value
		}
	}
	return merged
}
