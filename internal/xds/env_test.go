package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// env is a server and the snapshot that a test has it serve.
type env struct {
	t        testing.TB
	server   *Server
	snapshot Snapshot

	mu       sync.Mutex
	progress int
	logged   []string
}

func start(t testing.TB, o Options) *env {
	t.Helper()
	w := &env{t: t}
	w.snapshot = Snapshot{Clusters: map[string]Cluster{}}
	o.Address = "127.0.0.1:0"
	o.OnProgress = func([]string) { w.mu.Lock(); w.progress++; w.mu.Unlock() }
	server, err := NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	logger := funcr.New(func(_, args string) { w.mu.Lock(); w.logged = append(w.logged, args); w.mu.Unlock() }, funcr.Options{})
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), logger))
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	NewWithT(t).Eventually(server.Addr, "10s").ShouldNot(BeNil(), "the server listens")
	return w
}

// logs of the server.
func (w *env) logs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.logged)
}

// serve sets a cluster with hosts on ports; threshold is what its outlier detection says.
func (w *env) serve(name string, threshold uint32, ports ...uint32) {
	namespace, _, _ := strings.Cut(name, "/")
	w.snapshot.Clusters[name] = Cluster{testCluster(name, threshold), testEndpoints(ports...), namespace}
}

func testCluster(name string, threshold uint32) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		OutlierDetection: &clusterv3.OutlierDetection{Consecutive_5Xx: wrapperspb.UInt32(threshold)},
	}
}

func testEndpoints(ports ...uint32) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, port := range ports {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
			}}}},
		}})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: "whatever", Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// set serves a copy of the snapshot.
func (w *env) set(gone ...string) {
	w.t.Helper()
	w.server.Set(w.t.Context(), w.copy(gone...))
}

func (w *env) copy(gone ...string) Snapshot {
	return Snapshot{Clusters: maps.Clone(w.snapshot.Clusters), Gone: gone}
}

// withMissing is the snapshot, with a cluster missing that clients may have.
func (w *env) withMissing(missing string, gone ...string) Snapshot {
	s := w.copy(gone...)
	s.Missing = []string{missing}
	return s
}

func (w *env) conn(creds credentials.TransportCredentials) *grpc.ClientConn {
	w.t.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(w.server.Addr().String(), grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<28)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (w *env) connect(o xdsclient.Options) *xdsclient.Client {
	return w.connectAs(nil, o)
}

func (w *env) connectAs(creds credentials.TransportCredentials, o xdsclient.Options) *xdsclient.Client {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	client, err := xdsclient.Connect(ctx, w.conn(creds), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

// authority signs the certificates of a test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	a.key, a.cert = sign(t, nil, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}})
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) server(t testing.TB) tls.Certificate {
	key, cert := sign(t, a, &x509.Certificate{DNSNames: []string{"xds.test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// client's credentials with a SPIFFE identity.
func (a *authority) client(t testing.TB, identity string) credentials.TransportCredentials {
	t.Helper()
	return credentials.NewTLS(a.clientConfig(t, identity))
}

func (a *authority) clientConfig(t testing.TB, identity string) *tls.Config {
	t.Helper()
	uri, err := url.Parse(identity)
	if err != nil {
		t.Fatal(err)
	}
	key, cert := sign(t, a, &x509.Certificate{URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: a.pool(), ServerName: "xds.test",
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
	}
}

func sign(t testing.TB, by *authority, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

// Proxies are how many connected proxies may see a cluster and have accepted it, and its rejections.
type Proxies struct {
	Connected, Acked int
	Rejections       []Rejection
}

func proxies(s *Server, cluster string) Proxies {
	connected, acked := s.CountProxies([]string{cluster})
	return Proxies{Connected: connected, Acked: acked, Rejections: s.Rejections()[cluster]}
}

func names(t *table) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for _, e := range t.entries {
		all = append(all, e.name)
	}
	return all
}
