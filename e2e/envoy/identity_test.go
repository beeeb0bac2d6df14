package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resourcestack/autohealer/internal/xds"
)

const (
	everywhere = "spiffe://test/ns/edge/sa/envoy"
	shopOnly   = "spiffe://test/ns/shop/sa/envoy"
	nobody     = "spiffe://test/ns/other/sa/envoy"
)

// server's options under TLS.
func (a *Authority) server() xds.Options {
	key, cert := a.sign(&x509.Certificate{DNSNames: []string{"xds.test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return xds.Options{
		TLS: &xds.TLS{
			Certificate: func() (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}, nil
			},
			ClientCAs: func() (*x509.CertPool, error) { return pool, nil },
		},
		Authorise: func(identity string) (xds.Scope, bool) {
			return xds.Scope{All: identity == everywhere, Namespaces: map[string]bool{"shop": identity == shopOnly}}, identity != nobody
		},
	}
}

func secured(c *control, dir string, extra ...string) []string {
	return append([]string{
		"--server", c.options.Address, "--server-name=xds.test", "--resources-dir=" + dir,
		"--cert=" + filepath.Join(dir, "tls.crt"), "--key=" + filepath.Join(dir, "tls.key"), "--ca=" + filepath.Join(dir, "ca.crt"),
	}, extra...)
}

// impatient Envoys don't wait long for clusters that never come.
func impatient(b *bootstrapv3.Bootstrap) {
	b.DynamicResources.CdsConfig.InitialFetchTimeout = durationpb.New(time.Second)
}

func TestAnEnvoySeesWhatItsCertificateAllows(t *testing.T) {
	ca := NewAuthority(t)
	c := serve(t, ca.server())
	hosts := backends(t, 1)
	c.cluster(web, nil, hosts...)
	c.cluster("bank/web/80", nil, hosts...)
	c.publish()
	for name, test := range map[string]struct {
		identity  string
		signer    *Authority
		web, bank int
	}{
		"all":            {everywhere, ca, 1, 1},
		"one namespace":  {shopOnly, ca, 1, 0},
		"wrong identity": {nobody, ca, 0, 0},
		"another CA's":   {everywhere, NewAuthority(t), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir := NewWithT(t), t.TempDir()
			test.signer.Write(dir, test.identity, ca.PEM())
			e := Start(t, Options{Bootstrap: secured(c, dir), Listeners: []Listener{{Name: "web", Cluster: web}}, Change: impatient})
			g.Eventually(func() []Host { return e.Hosts(web) }, "10s").Should(HaveLen(test.web))
			g.Eventually(func() []Host { return e.Hosts("bank/web/80") }, "10s").Should(HaveLen(test.bank))
			if test.web == 0 {
				g.Eventually(func() int64 {
					return e.Stat("cluster_manager.cds.update_failure") + e.Stat("cluster.autohealer_xds.ssl.connection_error")
				}, "10s").
					Should(BeNumerically(">", 0), "it was refused")
				g.Expect(e.Hosts(web)).To(BeNil())
				g.Expect(e.Stat("cluster_manager.cds.update_success")).To(BeZero())
			}
		})
	}
}

func TestAnEnvoyWithoutACertificateGetsNothing(t *testing.T) {
	ca := NewAuthority(t)
	g, c := NewWithT(t), serve(t, ca.server())
	c.cluster(web, nil, backends(t, 1)...)
	c.publish()
	e := Start(t, Options{Bootstrap: []string{"--server", c.options.Address, "--plaintext"}, Listeners: []Listener{{Name: "web", Cluster: web}}, Change: impatient})
	g.Eventually(func() int64 { return e.Stat("cluster.autohealer_xds.upstream_cx_total") }, "10s").Should(BeNumerically(">", 1))
	g.Expect(e.Hosts(web)).To(BeNil())
	g.Expect(e.Stat("cluster_manager.cds.update_success")).To(BeZero())
}

func TestCertificatesRotateWithoutADroppedStream(t *testing.T) {
	first := NewAuthority(t)
	g, c := NewWithT(t), serve(t, first.server())
	hosts := backends(t, 1)
	c.cluster(web, func(*clusterv3.Cluster) {}, hosts...)
	c.publish()
	dir := t.TempDir()
	first.Write(dir, everywhere, first.PEM())
	e := Start(t, Options{Bootstrap: secured(c, dir), Listeners: []Listener{{Name: "web", Cluster: web}}})
	c.acked(web, 1)
	// What Envoy reads again from files isn't counted by its sds.*.update_success.
	read := func() int64 {
		return e.Stat("cluster.autohealer_xds.client_ssl_socket_factory.ssl_context_update_by_sds")
	}
	connections, once := e.Stat("cluster.autohealer_xds.upstream_cx_total"), read()

	second := NewAuthority(t)
	next := second.server()
	*c.options.TLS = *next.TLS // the server's from now on
	second.Write(dir, everywhere, second.PEM())
	g.Eventually(read, "10s").Should(BeNumerically(">", once))
	c.cluster(web, func(x *clusterv3.Cluster) { x.OutlierDetection.Consecutive_5Xx = wrapperspb.UInt32(9) }, hosts...)
	c.publish()
	g.Eventually(func() int64 { return e.Churn().Modified }, "10s").Should(Equal(int64(1)))
	g.Expect(e.Stat("cluster.autohealer_xds.upstream_cx_total")).To(Equal(connections), "the stream goes on")

	c.stop() // a new connection is under the new certificates on both sides, without a restart of Envoy
	c.options.TLS = next.TLS
	c.start()
	c.publish()
	c.acked(web, 1)
	g.Expect(e.Churn().Removed).To(BeZero())
}
