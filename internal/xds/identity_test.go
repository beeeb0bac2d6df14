package xds

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

const (
	edge   = "spiffe://test/ns/edge/sa/envoy"   // sees all
	tenant = "spiffe://test/ns/tenant/sa/envoy" // sees its own namespace
)

// rotating serves what was stored in it last.
type rotating struct {
	certificate atomic.Pointer[tls.Certificate]
	clients     atomic.Pointer[x509.CertPool]
}

func startTLS(t *testing.T) (*env, *authority, *rotating) {
	t.Helper()
	ca, r := newAuthority(t), &rotating{}
	certificate := ca.server(t)
	r.certificate.Store(&certificate)
	r.clients.Store(ca.pool())
	w := start(t, Options{
		TLS: &TLS{
			Certificate: func() (*tls.Certificate, error) { return r.certificate.Load(), nil },
			ClientCAs:   func() (*x509.CertPool, error) { return r.clients.Load(), nil },
		},
		Authorise: func(identity string) (Scope, bool) {
			switch identity {
			case edge:
				return Scope{All: true}, true
			case tenant:
				return Scope{Namespaces: map[string]bool{"tenant": true}}, true
			}
			return Scope{}, false
		},
	})
	w.serve("tenant/web/80", 5, 1001)
	w.serve("shop/web/80", 5, 2001)
	w.set()
	return w, ca, r
}

func TestAnIdentitySeesOnlyItsNamespaces(t *testing.T) {
	g := NewWithT(t)
	w, ca, _ := startTLS(t)
	all := w.connectAs(ca.client(t, edge), xdsclient.Options{})
	g.Eventually(all.Clusters, "5s").Should(HaveLen(2))

	own := w.connectAs(ca.client(t, tenant), xdsclient.Options{Node: &corev3.Node{Id: edge}})
	g.Eventually(func() []string { return own.Hosts("tenant/web/80") }, "5s").ShouldNot(BeEmpty())
	w.server.store.mu.Lock()
	service := w.server.store.published["shop/web/80"].endpointsEntry.name
	w.server.store.mu.Unlock()
	g.Expect(own.Ask(&discovery.DeltaDiscoveryRequest{ // by name, too
		TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", ResourceNamesSubscribe: []string{service, "shop/web/80#0"},
	})).To(Succeed())
	w.serve("shop/web/80", 6, 2001, 2002)
	w.serve("tenant/web/80", 6, 1001)
	w.set()
	g.Eventually(func() int { return own.Wire().Clusters["tenant/web/80"] }, "5s").Should(Equal(2))
	g.Eventually(func() []string { return own.Hosts("tenant/web/80") }, "5s").ShouldNot(BeEmpty())
	g.Expect(own.Clusters()).To(HaveLen(1))
	wire := own.Wire()
	g.Expect(wire.Clusters).NotTo(HaveKey("shop/web/80"))
	g.Expect(wire.Endpoints).NotTo(HaveKey(ContainSubstring("shop/")))
	g.Eventually(func() int { return proxies(w.server, "shop/web/80").Connected }, "5s").Should(Equal(1))
	g.Eventually(func() int { return proxies(w.server, "tenant/web/80").Connected }, "5s").Should(Equal(2))
}

func TestAClientWithoutACertificateGetsNothing(t *testing.T) {
	g := NewWithT(t)
	w, ca, _ := startTLS(t)
	for name, creds := range map[string]credentials.TransportCredentials{
		"none":           credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca.pool(), ServerName: "xds.test"}),
		"another CA's":   withRoots(t, ca, newAuthority(t)),
		"plaintext":      nil,
		"a TLS server's": credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca.pool(), ServerName: "xds.test", Certificates: []tls.Certificate{ca.server(t)}}),
	} {
		g.Expect(status.Code(w.refusal(creds))).To(Equal(codes.Unavailable), name)
	}
	g.Expect(w.logs()).To(ContainElement(ContainSubstring("refused a connection for xDS")))
}

// TestItIsLoggedWhyAHandshakeFails: gRPC says nothing, and an operator sees Envoys that don't come.
func TestItIsLoggedWhyAHandshakeFails(t *testing.T) {
	ca := newAuthority(t)
	certificate := ca.server(t)
	for name, c := range map[string]struct {
		client credentials.TransportCredentials
		want   []string
	}{
		"a certificate of another CA": {withRoots(t, ca, newAuthority(t)), []string{"unknown authority", "add its CA to that file"}},
		"no certificate": {
			credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca.pool(), ServerName: "xds.test"}), []string{"didn't provide a certificate", "envoy-bootstrap"},
		},
		"a client that doesn't trust the server": {withRoots(t, newAuthority(t), ca), []string{"bad certificate", "ValidatingWebhookConfiguration"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var logged []string
			h := &loggingCredentials{
				TransportCredentials: (&TLS{
					Certificate: func() (*tls.Certificate, error) { return &certificate, nil },
					ClientCAs:   func() (*x509.CertPool, error) { return ca.pool(), nil },
				}).credentials(),
				log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}), limiter: rate.Sometimes{Interval: logInterval},
			}
			for range 2 {
				client, server := tcpPipe(t)
				go func() { _, _, _ = c.client.ClientHandshake(t.Context(), "xds.test", client) }()
				_, _, err := h.ServerHandshake(server)
				g.Expect(err).To(HaveOccurred())
			}
			g.Expect(logged).To(HaveLen(1), "not for each attempt")
			for _, want := range c.want {
				g.Expect(logged[0]).To(ContainSubstring(want))
			}
			client, server := tcpPipe(t)
			g.Expect(client.Close()).To(Succeed())
			h.limiter = rate.Sometimes{Every: 1}
			_, _, err := h.ServerHandshake(server)
			g.Expect(err).To(HaveOccurred())
			g.Expect(logged).To(HaveLen(1), "a look whether the port is open")
		})
	}
}

// tcpPipe is a connection, from both ends.
func tcpPipe(t *testing.T) (client, server net.Conn) {
	t.Helper()
	g := NewWithT(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = l.Close() })
	client, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = client.Close() })
	server, err = l.Accept()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// refusal is why a client gets nothing; the connection fails before the first request or after it.
func (w *env) refusal(creds credentials.TransportCredentials) error {
	w.t.Helper()
	client, err := xdsclient.Connect(w.t.Context(), w.conn(creds), xdsclient.Options{})
	if err != nil {
		return err
	}
	select {
	case <-client.Ended():
	case <-time.After(10 * time.Second):
	}
	if client.Wire().ClusterResponses > 0 {
		w.t.Error("it got something")
	}
	return client.Err()
}

// withRoots trusts the server and shows a certificate of somebody else's.
func withRoots(t *testing.T, server, client *authority) credentials.TransportCredentials {
	t.Helper()
	creds := client.clientConfig(t, edge)
	creds.RootCAs = server.pool()
	return credentials.NewTLS(creds)
}

func TestAnIdentityThatNobodyKnowsGetsNothing(t *testing.T) {
	g := NewWithT(t)
	w, ca, _ := startTLS(t)
	client := w.connectAs(ca.client(t, "spiffe://test/ns/other/sa/envoy"), xdsclient.Options{Node: &corev3.Node{Id: edge}})
	g.Eventually(client.Ended(), "5s").Should(BeClosed())
	g.Expect(status.Code(client.Err())).To(Equal(codes.PermissionDenied))
	g.Expect(client.Wire().ClusterResponses).To(BeZero())
}

func TestCertificatesRotateWithoutDroppedStreams(t *testing.T) {
	g := NewWithT(t)
	w, ca, r := startTLS(t)
	client := w.connectAs(ca.client(t, edge), xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(2))

	next := newAuthority(t)
	certificate := next.server(t)
	r.certificate.Store(&certificate)
	r.clients.Store(next.pool())
	late := w.connectAs(next.client(t, edge), xdsclient.Options{})
	g.Eventually(late.Clusters, "5s").Should(HaveLen(2), "new streams are under the new certificates")
	g.Expect(status.Code(w.refusal(withRoots(t, next, ca)))).To(Equal(codes.Unavailable), "and not under the old ones")

	w.serve("shop/web/80", 6, 2001)
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/web/80"] }, "5s").Should(Equal(2), "open streams go on")
	g.Expect(client.Err()).NotTo(HaveOccurred())
}

func TestPlaintextIsForLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, ":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false} {
		if _, err := NewServer(Options{Address: address}); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := NewServer(Options{Address: ":1", Plaintext: true}); err != nil {
		t.Errorf("explicitly allowed: %v", err)
	}
}

func TestNoStreamIsServedWhileServesIsFalse(t *testing.T) {
	g := NewWithT(t)
	var serves atomic.Bool
	w := start(t, Options{Serves: serves.Load})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	g.Expect(status.Code(w.refusal(nil))).To(Equal(codes.Unavailable))

	serves.Store(true)
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(1))

	serves.Store(false)
	g.Eventually(client.Ended(), "5s").Should(BeClosed(), "streams that are open end")
	g.Expect(client.Wire().Removed).To(BeEmpty())
	g.Expect(status.Code(w.refusal(nil))).To(Equal(codes.Unavailable))
}
