package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// state is what a provider keeps in its section of the record.
type state struct {
	// leaf is what every replica serves, and ca signed it; nil at first.
	leaf, ca *pair
	// next is the CA to come: to be trusted before anything is served that it signed. Nil while there is none.
	next *pair
	// previous CAs are trusted as long as they are valid, because a replica that lags may still serve their leaf.
	previous []*x509.Certificate
}

// usable says whether API servers may still accept the leaf.
func (s state) usable(now time.Time) bool {
	return s.leaf != nil && !expired(s.leaf.certs[0], now)
}

// over says that there is no CA that could sign what is served.
func (s state) over(now time.Time) bool { return s.ca == nil || expired(s.ca.certs[0], now) }

// trusted are the CAs that were published before anything was served that they signed.
func (s state) trusted() []*x509.Certificate {
	if s.ca == nil {
		return s.previous
	}
	return slices.Concat(s.previous, s.ca.certs)
}

// advance takes the one step that is due, and says which; "" when none is. What is offered is nil while nothing is, else acceptable.
//
// An offer of a CA that isn't trusted yet comes in two steps: the CA is published as the next one, and the offer is served
// once that is settled, that is, once every API server must have seen it. Whatever the CA, an offer that is younger than
// settle waits while something else is served, by this replica or by another: to an API server whose clock is behind, it isn't
// valid yet. What we sign ourselves is dated back instead.
func (s state) advance(offered *offer, c decisionInput, settle time.Duration) (state, string) {
	if offered == nil {
		return s, ""
	}
	if s.serves(offered.leaf) {
		return s.withoutGivenUp(offered.ca)
	}
	trusted, otherUsable := containsAll(s.trusted(), offered.ca.certs), s.usable(c.now) || c.others
	switch {
	case !otherUsable:
		return s.take(offered, c.now), "took the first serving certificate"
	case !trusted && !offered.ca.same(s.next):
		s.next = offered.ca
		return s, "learnt of a new CA, to be trusted before what it signed is served"
	case offered.ca.foreign() && c.now.Before(offered.leaf.certs[0].NotBefore.Add(settle)):
	case trusted:
		return s.take(offered, c.now), "took the renewed serving certificate"
	case c.settled:
		return s.take(offered, c.now), "the new CA is trusted: took the serving certificate that it signed"
	}
	return s, ""
}

func (s state) serves(leaf *pair) bool {
	return s.leaf != nil && bytes.Equal(s.leaf.certPEM, leaf.certPEM) && bytes.Equal(s.leaf.keyPEM, leaf.keyPEM)
}

// withoutGivenUp drops a next CA that is somebody else's, who signs by another one after all.
func (s state) withoutGivenUp(ca *pair) (state, string) {
	if s.next == nil || !s.next.foreign() || ca.same(s.next) {
		return s, ""
	}
	s.next = nil
	return s, "forgot a new CA, which signs no serving certificate after all"
}

// take lets what is offered be served. The CAs before stay trusted until they expire. A next one without a key is somebody else's, who
// signs by the one that is offered.
func (s state) take(offered *offer, now time.Time) state {
	s.previous = slices.DeleteFunc(slices.Clone(s.trusted()), func(c *x509.Certificate) bool {
		return expired(c, now) || slices.ContainsFunc(offered.ca.certs, c.Equal)
	})
	if s.next != nil && (s.next.foreign() || offered.ca.same(s.next)) {
		s.next = nil
	}
	s.leaf, s.ca = offered.leaf, offered.ca
	return s
}

// withoutExpired drops the CAs that nobody needs to trust any more, and a next one that came too late.
func (s state) withoutExpired(now time.Time) (state, bool) {
	gone := func(c *x509.Certificate) bool { return expired(c, now) }
	valid := slices.DeleteFunc(slices.Clone(s.previous), gone)
	dropped := len(valid) < len(s.previous)
	s.previous = valid
	if s.next != nil && slices.ContainsFunc(s.next.certs, gone) {
		s.next, dropped = nil, true
	}
	return s, dropped
}

// encode gives the section's content.
func (p section) encode(s state) (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, of := range p.pairs(&s) {
		if held := *of.pair; held != nil {
			data[of.cert] = held.certPEM
			if of.key != "" {
				data[of.key] = held.keyPEM
			}
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

// decode reads the section's content. It is strict: what it can't read or what doesn't fit together is an error, so that
// the caller starts afresh instead of serving something that no API server accepts.
func (p section) decode(data map[string][]byte) (s state, err error) {
	for _, of := range p.pairs(&s) {
		if len(data[of.cert])+len(data[of.key]) == 0 {
			continue
		}
		if *of.pair, err = readPair(data[of.cert], data[of.key], of.key != ""); err != nil {
			return state{}, fmt.Errorf("read %s: %w", of.cert, err)
		}
	}
	if len(data[p.previous]) > 0 {
		if s.previous, err = cert.ParseCertsPEM(data[p.previous]); err != nil {
			return state{}, fmt.Errorf("read %s: %w", p.previous, err)
		}
	}
	if (s.leaf == nil) != (s.ca == nil) {
		return state{}, fmt.Errorf("%s and %s must both be there", p.leafCert, p.caCert)
	}
	if s.leaf != nil && p.caKey != "" { // it signs what is served itself
		if err := s.leaf.certs[0].CheckSignatureFrom(s.ca.certs[0]); err != nil {
			return state{}, fmt.Errorf("check that %s is signed by %s: %w", p.leafCert, p.caCert, err)
		}
	}
	return s, nil
}

// held is where a pair of a state is in the section; key is "" where it has none.
type held struct {
	cert, key string
	pair      **pair
}

func (p section) pairs(s *state) []held {
	return []held{{p.leafCert, p.leafKey, &s.leaf}, {p.caCert, p.caKey, &s.ca}, {p.nextCert, p.nextKey, &s.next}}
}
