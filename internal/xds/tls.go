package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// TLS is how the server shows who it is and knows its clients. Both functions are called for each handshake, so
// certificates and CAs can be replaced at any time; open streams go on.
type TLS struct {
	// Certificate that the server shows.
	Certificate func() (*tls.Certificate, error)
	// ClientCAs sign the certificates of clients. A client without one of theirs gets no connection.
	ClientCAs func() (*x509.CertPool, error)
}

func (t *TLS) credentials() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, // what an Envoy speaks as a client unless it is told otherwise
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

// identify gives the first name of the client's certificate that may see anything: URIs (SPIFFE), then DNS names. Common
// names are not looked at, and neither is what the client says of itself.
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
	return "", Scope{}, fmt.Errorf("none of the names in the client's certificate may get configuration: %.*q", maxShown, names[:min(len(names), maxNames)])
}

// loopback is true for addresses that only this machine reaches.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
