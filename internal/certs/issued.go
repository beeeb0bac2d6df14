package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// pair is a serving certificate from somebody else, as text and as a server wants it, with the CAs that vouch for it.
type pair struct {
	certPEM, keyPEM []byte
	tls             *tls.Certificate
	authorities     []*x509.Certificate
}

// readPair parses a pair and checks that the parts belong together.
func readPair(certPEM, keyPEM, authoritiesPEM []byte) (*pair, error) {
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read certificate and key: %w", err)
	}
	authorities, err := cert.ParseCertsPEM(authoritiesPEM)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	return &pair{certPEM: certPEM, keyPEM: keyPEM, tls: &loaded, authorities: authorities}, nil
}

// acceptable says why an API server would refuse the pair at some host, if it would.
func (p *pair) acceptable(hosts []string, now time.Time) error {
	o := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, authority := range p.authorities {
		o.Roots.AddCert(authority)
	}
	for _, der := range p.tls.Certificate[1:] {
		if intermediate, err := x509.ParseCertificate(der); err == nil {
			o.Intermediates.AddCert(intermediate)
		}
	}
	if _, err := p.tls.Leaf.Verify(o); err != nil {
		return err
	}
	for _, host := range hosts {
		if err := p.tls.Leaf.VerifyHostname(host); err != nil {
			return err
		}
	}
	return nil
}

// issued is what CertManager keeps in the record.
type issued struct {
	// leaf is what every replica serves; nil at first.
	leaf *pair
	// next are the CAs of a certificate to come: to be trusted before that is served.
	next []*x509.Certificate
	// previous CAs are trusted as long as they are valid, because a replica that lags may still serve their leaf.
	previous []*x509.Certificate
}

// usable says whether API servers may still accept the leaf.
func (s issued) usable(now time.Time) bool { return s.leaf != nil && !expired(s.leaf.tls.Leaf, now) }

// trusted are the CAs that were published before anything was served that they signed.
func (s issued) trusted() []*x509.Certificate {
	if s.leaf == nil {
		return s.previous
	}
	return slices.Concat(s.previous, s.leaf.authorities)
}

// advance takes the one step that is due for a candidate, the pair that was issued last, and says which; "" when none is.
// The candidate is nil while there is none, else acceptable.
//
// A candidate of CAs that aren't trusted yet comes in two steps: they are published as the next ones, and the candidate is
// served once that is settled. Whatever the CA, a candidate that is younger than settle waits while something else is served,
// by this replica or by another: to an API server whose clock is behind, it isn't valid yet.
func (s issued) advance(candidate *pair, c circumstances, settle time.Duration) (issued, string) {
	s, dropped := s.withoutExpired(c.now)
	step := ""
	if candidate != nil && !s.serves(candidate) {
		s, step = s.approach(candidate, c, settle)
	}
	if step == "" && dropped {
		step = "dropped expired CAs"
	}
	return s, step
}

// approach takes the step that is due towards a candidate that isn't served yet.
func (s issued) approach(candidate *pair, c circumstances, settle time.Duration) (issued, string) {
	trusted, elsewhere := containsAll(s.trusted(), candidate.authorities), s.usable(c.now) || c.others
	switch {
	case !elsewhere:
		return s.take(candidate, c.now), "took the first serving certificate"
	case !trusted && !slices.EqualFunc(s.next, candidate.authorities, (*x509.Certificate).Equal):
		s.next = candidate.authorities
		return s, "learnt of a new CA, to be trusted before what it signed is served"
	case tooYoung(candidate, c.now, settle):
		return s, ""
	case trusted:
		return s.take(candidate, c.now), "took the renewed serving certificate"
	case c.settled:
		return s.take(candidate, c.now), "the new CA is trusted: took the serving certificate that it signed"
	}
	return s, ""
}

func (s issued) serves(candidate *pair) bool {
	return s.leaf != nil && bytes.Equal(s.leaf.certPEM, candidate.certPEM) && bytes.Equal(s.leaf.keyPEM, candidate.keyPEM)
}

func tooYoung(candidate *pair, now time.Time, settle time.Duration) bool {
	return now.Before(candidate.tls.Leaf.NotBefore.Add(settle))
}

// take lets the candidate be served. The CAs before stay trusted until they expire.
func (s issued) take(candidate *pair, now time.Time) issued {
	previous := slices.DeleteFunc(slices.Clone(s.trusted()), func(c *x509.Certificate) bool {
		return expired(c, now) || slices.ContainsFunc(candidate.authorities, c.Equal)
	})
	return issued{leaf: candidate, previous: previous}
}

// withoutExpired drops the CAs that nobody needs to trust any more, and next ones that came too late.
func (s issued) withoutExpired(now time.Time) (issued, bool) {
	gone := func(c *x509.Certificate) bool { return expired(c, now) }
	valid := slices.DeleteFunc(slices.Clone(s.previous), gone)
	dropped := len(valid) < len(s.previous)
	s.previous = valid
	if slices.ContainsFunc(s.next, gone) {
		s.next, dropped = nil, true
	}
	return s, dropped
}

// encode gives the part's content.
func (s issued) encode() (map[string][]byte, error) {
	data, p := map[string][]byte{}, certManagerPart
	authorities := map[string][]*x509.Certificate{p.nextCert: s.next, p.previous: s.previous}
	if s.leaf != nil {
		data[p.leafCert], data[p.leafKey] = s.leaf.certPEM, s.leaf.keyPEM
		authorities[p.caCert] = s.leaf.authorities
	}
	for key, certificates := range authorities {
		if len(certificates) == 0 {
			continue
		}
		text, err := cert.EncodeCertificates(certificates...)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		data[key] = text
	}
	return data, nil
}

// decodeIssued reads the part's content. It is strict, as decodeState is.
func decodeIssued(data map[string][]byte) (issued, error) {
	var s issued
	var err error
	p := certManagerPart
	if len(data[p.leafCert])+len(data[p.leafKey])+len(data[p.caCert]) > 0 {
		if s.leaf, err = readPair(data[p.leafCert], data[p.leafKey], data[p.caCert]); err != nil {
			return issued{}, fmt.Errorf("read %s, %s and %s: %w", p.leafCert, p.leafKey, p.caCert, err)
		}
	}
	for key, certificates := range map[string]*[]*x509.Certificate{p.nextCert: &s.next, p.previous: &s.previous} {
		if len(data[key]) == 0 {
			continue
		}
		if *certificates, err = cert.ParseCertsPEM(data[key]); err != nil {
			return issued{}, fmt.Errorf("read %s: %w", key, err)
		}
	}
	return s, nil
}
