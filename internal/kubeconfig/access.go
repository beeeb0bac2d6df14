package kubeconfig

import (
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
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

// Policy says where connections may go.
type Policy struct {
	// AllowLoopback allows servers on this machine, for tests and local clusters. In a cluster it would let a tenant reach
	// what listens inside Autohealer's pod.
	AllowLoopback bool
}

// metadataServices are the addresses outside the link-local ranges where clouds serve instance credentials.
var metadataServices = []netip.Addr{
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS, EKS Pod Identity
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
}

// embeddedIPv4 are the ranges of IPv6 addresses that stand for an IPv4 address, which begins at this byte.
var embeddedIPv4 = map[netip.Prefix]int{
	netip.MustParsePrefix("::/96"):          12, // IPv4-compatible (RFC 4291), the unspecified and loopback addresses included
	netip.MustParsePrefix("64:ff9b::/96"):   12, // NAT64 (RFC 6052)
	netip.MustParsePrefix("64:ff9b:1::/48"): 12, // NAT64 for local use (RFC 8215), in its longest form
	netip.MustParsePrefix("2002::/16"):      2,  // 6to4 (RFC 3056)
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux takes 0.0.0.0 for the loopback address
	broadcast   = netip.MustParseAddr("255.255.255.255")
)

// Check judges an address as it is dialled, after names were resolved. It returns Loopback, ForbiddenAddress or nil.
func (p Policy) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	if addr.IsLoopback() {
		if p.AllowLoopback {
			return nil
		}
		return Loopback
	}
	if forbidden(addr) {
		return ForbiddenAddress
	}
	for prefix, at := range embeddedIPv4 {
		if prefix.Contains(addr) {
			bytes := addr.As16()
			return p.Check(netip.AddrFrom4([4]byte(bytes[at : at+4])))
		}
	}
	return nil
}

func forbidden(addr netip.Addr) bool {
	for _, known := range metadataServices {
		if addr == known {
			return true
		}
	}
	return !addr.IsValid() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast() ||
		thisNetwork.Contains(addr) || addr == broadcast
}

// Control is a [net.Dialer]'s: it sees every address that is dialled, so that a name which resolves to another address
// the second time gains nothing.
func (p Policy) Control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return ForbiddenAddress
	}
	return p.Check(to.Addr())
}
