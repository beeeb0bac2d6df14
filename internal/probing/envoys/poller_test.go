package envoys

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	pair := a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.key, a.cert = pair.PrivateKey.(*ecdsa.PrivateKey), pair.Leaf
	return a
}

func (a *authority) sign(c *x509.Certificate) *tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.Subject = pkix.Name{CommonName: c.SerialNumber.String()}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool, nil
}

func (a *authority) envoy(name string, usage x509.ExtKeyUsage) *tls.Certificate {
	uri, err := url.Parse("spiffe://test/" + name)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.sign(&x509.Certificate{URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
}

// envoy answers at the two paths.
type envoy struct {
	stats, clusters string
	*httptest.Server
}

func serve(t *testing.T, e *envoy, shows *tls.Certificate) *envoy {
	t.Helper()
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := map[string]string{"/stats": e.stats, "/clusters": e.clusters}[r.URL.Path]
		if !known || answer == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, answer)
	}))
	e.TLS = &tls.Config{Certificates: []tls.Certificate{*shows}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *envoy) address() string { return strings.TrimPrefix(e.URL, "https://") }

const (
	none = `{"stats":[{"name":"cluster.shop/web/80.outlier_detection.ejections_active","value":0}]}`
	some = `{"stats":[{"name":"cluster.a.outlier_detection.ejections_active","value":0},{"name":"cluster.shop/web/80.outlier_detection.ejections_active","value":1}]}`
	// clusters as Envoy 1.39 returns them, reduced to the fields that are read.
	clusters = `{"cluster_statuses":[
{"name":"shop/web/80","added_via_api":true,"host_statuses":[
 {"address":{"socket_address":{"address":"10.0.0.1","port_value":8080}},"stats":[{"name":"cx_total"}],"health_status":{"eds_health_status":"HEALTHY","failed_outlier_check":true}},
 {"address":{"socket_address":{"address":"10.0.0.2","port_value":8080}},"health_status":{"eds_health_status":"HEALTHY"}}]},
{"name":"autohealer_xds","host_statuses":[{"address":{"socket_address":{"address":"10.0.0.9","port_value":1}},"health_status":{"failed_outlier_check":true}}]}]}`
)

var web = ejection.Host{Cluster: outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "web"}, Port: 80}, Address: "10.0.0.1:8080"}

// newPoller polls Envoys with certificates of a CA.
func newPoller(t *testing.T, a *authority, at ...*envoy) (*Poller, *clocktesting.FakeClock) {
	now := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC))
	own := newAuthority(t).sign(&x509.Certificate{DNSNames: []string{"autohealer.test"}})
	poller := &Poller{Clock: now, Identity: Identity{
		Certificate: func() (*tls.Certificate, error) { return own, nil }, EnvoyCAs: a.pool,
		Scope: func(name string) (ejection.Scope, bool) {
			return ejection.Scope{Namespaces: map[string]bool{"shop": true}}, name == "spiffe://test/edge"
		},
	}, Endpoints: func(context.Context) (all []Endpoint, missing []string, err error) {
		for i, e := range at {
			all = append(all, Endpoint{Name: fmt.Sprintf("edge/envoy-%d", i), Address: e.address()})
		}
		return all, nil, nil
	}}
	poller.client = poller.Identity.client()
	t.Cleanup(poller.client.CloseIdleConnections)
	return poller, now
}

func TestAnEnvoySaysWhomItHasEjected(t *testing.T) {
	a := newAuthority(t)
	e := serve(t, &envoy{stats: some, clusters: clusters}, a.envoy("edge", x509.ExtKeyUsageClientAuth))
	poller, _ := newPoller(t, a, e)
	if poller.View() != nil {
		t.Error("it tells before it has asked")
	}
	poller.pollAll(t.Context())
	if _, ok := poller.View().EjectionOf(web); !ok || poller.View().Ejected() != 1 {
		t.Errorf("it tells of %d hosts, silent: %v", poller.View().Ejected(), poller.View().Silent("shop"))
	}
	e.stats, e.clusters = none, "" // which isn't asked for then
	poller.pollAll(t.Context())
	if poller.View().Ejected() != 0 || poller.View().Answering("shop") != 1 {
		t.Error("a host that is back is told, or nothing is known:", poller.View().Silent("shop"))
	}
}

func TestAnswersThatDontCount(t *testing.T) {
	for name, c := range map[string]struct {
		envoy   envoy
		shows   func(a *authority) *tls.Certificate
		problem string
	}{
		"one that another CA signed": {shows: func(*authority) *tls.Certificate {
			return newAuthority(t).envoy("edge", x509.ExtKeyUsageClientAuth)
		}, problem: "its certificate: x509: certificate signed by unknown authority"},
		"one that may see nothing": {shows: func(a *authority) *tls.Certificate { return a.envoy("other", x509.ExtKeyUsageClientAuth) },
			problem: `none of the names in its certificate is an Envoy's: ["spiffe://test/other"]`},
		"a server that is no Envoy": {shows: func(a *authority) *tls.Certificate { return a.envoy("edge", x509.ExtKeyUsageServerAuth) },
			problem: "x509: certificate specifies an incompatible key usage"},
		"an answer that was cut":  {envoy: envoy{stats: some, clusters: clusters[:len(clusters)-1]}, problem: "read its answer: "},
		"an answer of other kind": {envoy: envoy{stats: some, clusters: `{"error":1}`}, problem: "read its answer: error where cluster_statuses was expected"},
		"no answer":               {envoy: envoy{}, problem: "it answers 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			shown := a.envoy("edge", x509.ExtKeyUsageClientAuth)
			if c.shows != nil {
				shown, c.envoy = c.shows(a), envoy{stats: some, clusters: clusters}
			}
			poller, now := newPoller(t, a, serve(t, &c.envoy, shown))
			poller.pollAll(t.Context())
			if !poller.View().Pending("shop") || len(poller.View().Silent("shop")) > 0 {
				t.Error("it is told as silent at once")
			}
			now.Step(16 * time.Second)
			poller.pollAll(t.Context())
			silent := poller.View().Silent("shop")
			if len(silent) != 1 || silent[0].Name != "edge/envoy-0" || !strings.Contains(silent[0].Problem, c.problem) {
				t.Errorf("silent: %q", silent)
			}
			if poller.View().Ejected() != 0 {
				t.Error("it is believed")
			}
		})
	}
}

func TestAnEnvoyThatIsNoEndpointAnyMoreIsForgotten(t *testing.T) {
	a := newAuthority(t)
	e := serve(t, &envoy{stats: some, clusters: clusters}, a.envoy("edge", x509.ExtKeyUsageClientAuth))
	poller, now := newPoller(t, a, e)
	poller.pollAll(t.Context())
	before := poller.View()
	now.Step(5 * time.Second)
	poller.pollAll(t.Context())
	if !poller.View().SameAs(before) {
		t.Error("the same answer is news")
	}
	poller.Endpoints = func(context.Context) ([]Endpoint, []string, error) {
		return nil, []string{"Service edge/envoys has no ready endpoints"}, nil
	}
	poller.pollAll(t.Context())
	if diff := cmp.Diff([]string{"Service edge/envoys has no ready endpoints"}, poller.View().Missing); diff != "" || poller.View().Ejected() != 0 || poller.View().SameAs(before) {
		t.Error(diff, poller.View().Ejected())
	}
}

func TestAProblemIsTheSameOverAnotherConnection(t *testing.T) {
	a := newAuthority(t)
	e := serve(t, &envoy{}, a.envoy("edge", x509.ExtKeyUsageClientAuth))
	e.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0) // the client sees a reset
		_ = conn.(*tls.Conn).NetConn().Close()
	})
	poller, now := newPoller(t, a, e)
	now.Step(16 * time.Second)
	for range 3 {
		poller.pollAll(t.Context())
		now.Step(16 * time.Second)
		if got := poller.View().Silent("shop"); len(got) != 1 || got[0].Problem != "read: read: connection reset by peer" && got[0].Problem != "EOF" {
			t.Errorf("got %q", got)
		}
	}
	e.Close()
	for range 2 {
		poller.pollAll(t.Context())
	}
	if got := poller.View().Silent("shop"); len(got) != 1 || got[0].Problem != "dial: connect: connection refused" {
		t.Errorf("got %q", got)
	}
}
