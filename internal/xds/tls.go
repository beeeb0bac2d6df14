package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// TLS is how the server authenticates itself and its clients. Both functions are called for each handshake, so certificates and CAs
// can be replaced at any time; open streams continue.
type TLS struct {
	// Certificate that the server shows.
	Certificate func() (*tls.Certificate, error)
	// ClientCAs sign the certificates of clients. A client without one of theirs gets no connection.
	ClientCAs func() (*x509.CertPool, error)
}

func (t *TLS) credentials() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, // what an Envoy speaks as a client by default
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			certificate, err := t.Certificate()
			if err != nil {
				return nil, fmt.Errorf("the xDS server's certificate: %w", err)
			}
			authorities, err := t.ClientCAs()
			if err != nil {
				return nil, fmt.Errorf("the CAs of xDS clients: %w", err)
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS12,
				NextProtos:   []string{"h2"},
				Certificates: []tls.Certificate{*certificate},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    authorities,
			}, nil
		},
	})
}

// logInterval bounds how often failed handshakes are logged: Envoys retry all the time.
const logInterval = 10 * time.Second

// loggingCredentials logs failed handshakes, which gRPC doesn't.
type loggingCredentials struct {
	credentials.TransportCredentials
	log     logr.Logger
	limiter rate.Sometimes
}

// ServerHandshake doesn't log clients that only check whether the port is open.
func (h *loggingCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := h.TransportCredentials.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		h.limiter.Do(func() {
			h.log.Info("refused a connection for xDS", "from", conn.RemoteAddr().String(), "reason", err.Error(), "do", remedy(err))
		})
	}
	return secured, info, err
}

// remedy is what to do about a handshake that failed.
func remedy(err error) string {
	var certificate *tls.CertificateVerificationError
	var network *net.OpError
	switch {
	case errors.As(err, &certificate):
		return "give the Envoy a certificate for clients that is valid and that a CA in --xds-client-ca signed, or add its CA to that file"
	case errors.As(err, &network) && network.Op == "remote error":
		return "have the Envoy trust the CA that the ValidatingWebhookConfiguration autohealer publishes, as kubectl autohealer envoy-bootstrap says"
	}
	return "compare the Envoy's bootstrap with what kubectl autohealer envoy-bootstrap prints: it shows a certificate, and speaks TLS 1.2 or later"
}

// identify returns the first name in the client's certificate that may see anything: URIs (SPIFFE), then DNS names. The common name and
// the node that the client sends aren't used.
func (s *Server) identify(ctx context.Context) (string, Scope, error) {
	if s.TLS == nil {
		return "", Scope{All: true}, nil
	}
	client, ok := peer.FromContext(ctx)
	if !ok {
		return "", Scope{}, fmt.Errorf("the client isn't known")
	}
	info, ok := client.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", Scope{}, fmt.Errorf("the client has shown no certificate")
	}
	leaf := info.State.VerifiedChains[0][0]
	var names []string
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	names = append(names, leaf.DNSNames...)
	for _, name := range names {
		if scope, may := s.Authorise(name); may {
			return name, scope, nil
		}
	}
	return "", Scope{}, fmt.Errorf("none of the names in the client's certificate may get configuration: %.*q", maxMessageBytes, names[:min(len(names), maxCertificateNames)])
}

// loopback says whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
