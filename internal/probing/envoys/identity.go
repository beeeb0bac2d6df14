package envoys

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
)

// Identity is how the manager and Envoys know each other. Functions are called for each handshake.
type Identity struct {
	// Certificate that the manager shows.
	Certificate func() (*tls.Certificate, error)
	// EnvoyCAs sign the certificates of Envoys.
	EnvoyCAs func() (*x509.CertPool, error)
	// Scope of an Envoy with this URI or DNS name in its certificate.
	Scope func(name string) (ejection.Scope, bool)
}

// client speaks with Envoys and nobody else: it knows them by their names and not by addresses, which come and go.
func (i *Identity) client() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				MinVersion:           tls.VersionTLS12,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.Certificate() },
				InsecureSkipVerify:   true, // the addresses aren't in the certificates; verify does it
				VerifyConnection:     i.verify,
			},
			MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * every, MaxResponseHeaderBytes: 64 << 10, ResponseHeaderTimeout: patience, TLSHandshakeTimeout: patience,
			ExpectContinueTimeout: time.Second,
		},
	}
}

// verify that an Envoy is one: it shows the certificate that it shows as a client, too.
func (i *Identity) verify(state tls.ConnectionState) error {
	authorities, err := i.EnvoyCAs()
	if err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("it shows no certificate")
	}
	o := x509.VerifyOptions{Roots: authorities, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range state.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(o); err != nil {
		return fmt.Errorf("its certificate: %w", err)
	}
	_, err = i.scope(&state)
	return err
}

// scope of the Envoy at the other end: what the first of its names that may see anything may see.
func (i *Identity) scope(state *tls.ConnectionState) (ejection.Scope, error) {
	leaf := state.PeerCertificates[0]
	var names []string
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	names = append(names, leaf.DNSNames...)
	for _, name := range names {
		if scope, may := i.Scope(name); may {
			scope.Identity = name
			return scope, nil
		}
	}
	return ejection.Scope{}, fmt.Errorf("none of the names in its certificate is an Envoy's: %q", names)
}
