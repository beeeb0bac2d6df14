package kubeconfig

import (
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// maxHeaderBytes bounds the headers of an answer. The API server's take less than 1 KiB.
const maxHeaderBytes = 16 << 10

// Access is what is left of a kubeconfig: one API server and static credentials. It is immutable, and prints as the
// server alone.
type Access struct {
	server        *url.URL
	tls           *tls.Config
	authorization string
	expiry        Expiry
}

func newAccess(server *url.URL, config *rest.Config) (*Access, error) {
	if (len(config.CertData) == 0) != (len(config.KeyData) == 0) {
		return nil, BadCertificate
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, BadCertificate // the text would be about what is secret
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12} // no CA and no certificate: the system's CAs count
	}
	authorization, err := authorize(config)
	if err != nil {
		return nil, err
	}
	return &Access{server: server, tls: tlsConfig, authorization: authorization, expiry: expiryOf(config, authorization)}, nil
}

// authorize gives the value of the header Authorization; empty with a client certificate.
func authorize(config *rest.Config) (string, error) {
	basic := config.Username != "" || config.Password != ""
	switch {
	case basic && config.BearerToken != "", strings.ContainsFunc(config.BearerToken, unprintable):
		return "", BadCredential
	case basic:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(config.Username+":"+config.Password)), nil
	case config.BearerToken != "":
		return "Bearer " + config.BearerToken, nil
	case len(config.CertData) == 0:
		return "", NoCredential
	}
	return "", nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// Server is the API server's host and port, normalised: lower case, IP addresses in their shortest form, the port always
// there. Two kubeconfigs with the same Server reach the same server; with different ones they still may, by DNS.
func (a *Access) Server() string { return a.server.Host }

// URL of a path on the API server.
func (a *Access) URL(path string) *url.URL {
	u := *a.server
	u.Path += path
	return &u
}

// Authorize sets the header that authenticates a request, if there is one.
func (a *Access) Authorize(header http.Header) {
	if a.authorization != "" {
		header.Set("Authorization", a.authorization)
	}
}

// Transport makes a transport to the API server: no proxy, not from the environment either; only addresses that the
// policy allows; TLS verified. It follows no redirect (as none does), and adds no credentials: use Authorize. The dialer says how
// long a connection may take to come about, and how it is kept alive.
func (a *Access) Transport(p Policy, by net.Dialer) *http.Transport {
	by.Control = p.Control
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            by.DialContext,
		TLSClientConfig:        a.tls,
		Protocols:              protocols,
		DisableCompression:     true, // a small body could unpack to a large one
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// String is the server without credentials, whatever verb it is printed with.
func (a *Access) String() string { return a.server.String() }

// GoString keeps %#v from printing credentials.
func (a *Access) GoString() string { return a.String() }

// Expiry is when a kubeconfig stops working by itself. The zero value is that it doesn't, as far as it tells.
type Expiry struct {
	// Of says what ends then.
	Of string
	At time.Time
}

// expiryOf is that of the client certificate, unless there are other credentials, which the API server takes then; or of the last
// certificate authority, whichever ends first. Without any authority the system's count.
func expiryOf(config *rest.Config, authorization string) (first Expiry) {
	if own, err := certutil.ParseCertsPEM(config.CertData); err == nil && authorization == "" {
		first = Expiry{"client certificate", own[0].NotAfter}
	}
	authorities, err := certutil.ParseCertsPEM(config.CAData)
	if err != nil { // none
		return first
	}
	last := Expiry{Of: "last certificate authority"}
	for _, authority := range authorities {
		if authority.NotAfter.After(last.At) {
			last.At = authority.NotAfter
		}
	}
	if first.At.IsZero() || last.At.Before(first.At) {
		return last
	}
	return first
}
