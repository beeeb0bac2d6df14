package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// state is what SelfSigned keeps in the record. Where it takes over from another provider there is but a next CA at first.
type state struct {
	ca   keyPair // signed the leaf
	leaf keyPair // what every replica serves
	// next is the CA to come: trusted by API servers, but signing nothing yet.
	next *keyPair
	// previous CAs are trusted as long as they are valid, because a replica that lags may still serve their leaf.
	previous []*x509.Certificate
}

// unserved says that there is nothing to serve yet, only a CA to come.
func (s state) unserved() bool { return s.leaf.cert == nil }

// withoutExpired drops the CAs that nobody needs to trust any more, and a next one that came too late.
func (s state) withoutExpired(now time.Time) (state, bool) {
	valid := slices.DeleteFunc(slices.Clone(s.previous), func(c *x509.Certificate) bool { return expired(c, now) })
	dropped := len(valid) < len(s.previous)
	s.previous = valid
	if s.next != nil && s.next.expired(now) {
		s.next, dropped = nil, true
	}
	return s, dropped
}

// encode gives the part's content.
func (s state) encode() (map[string][]byte, error) {
	data, p := map[string][]byte{}, selfSignedPart
	put := func(certKey, keyKey string, pair keyPair) error {
		var err error
		data[certKey], data[keyKey], err = pair.encode()
		return err
	}
	if !s.unserved() {
		if err := errors.Join(put(p.leafCert, p.leafKey, s.leaf), put(p.caCert, p.caKey, s.ca)); err != nil {
			return nil, err
		}
	}
	if s.next != nil {
		if err := put(p.nextCert, p.nextKey, *s.next); err != nil {
			return nil, err
		}
	}
	if len(s.previous) > 0 {
		previous, err := cert.EncodeCertificates(s.previous...)
		if err != nil {
			return nil, fmt.Errorf("encode previous CAs: %w", err)
		}
		data[p.previous] = previous
	}
	return data, nil
}

// decodeState reads the part's content. It is strict: what it can't read or what doesn't fit together is an error, so that
// the caller starts afresh instead of serving something that no API server accepts.
func decodeState(data map[string][]byte) (state, error) {
	var s state
	var err error
	p := selfSignedPart
	if len(data[p.nextCert])+len(data[p.nextKey]) > 0 {
		next, err := decode(data[p.nextCert], data[p.nextKey])
		if err != nil {
			return state{}, fmt.Errorf("read %s and %s: %w", p.nextCert, p.nextKey, err)
		}
		s.next = &next
	}
	if len(data[p.previous]) > 0 {
		if s.previous, err = cert.ParseCertsPEM(data[p.previous]); err != nil {
			return state{}, fmt.Errorf("read %s: %w", p.previous, err)
		}
	}
	if s.next != nil && len(data[p.caCert])+len(data[p.leafCert]) == 0 {
		return s, nil
	}
	if s.ca, err = decode(data[p.caCert], data[p.caKey]); err != nil {
		return state{}, fmt.Errorf("read %s and %s: %w", p.caCert, p.caKey, err)
	}
	if s.leaf, err = decode(data[p.leafCert], data[p.leafKey]); err != nil {
		return state{}, fmt.Errorf("read %s and %s: %w", p.leafCert, p.leafKey, err)
	}
	if err := s.leaf.cert.CheckSignatureFrom(s.ca.cert); err != nil {
		return state{}, fmt.Errorf("check that %s is signed by %s: %w", p.leafCert, p.caCert, err)
	}
	return s, nil
}
