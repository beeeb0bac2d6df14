package probing

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const aVersion = `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`

// loopback is where stub servers are.
var loopback = kubeconfig.Policy{AllowLoopback: true}

func answerVersion(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(aVersion)) }

// stub is a TLS server that speaks HTTP/2, unless told otherwise, behind a proxy that can break connections.
type stub struct {
	*httptest.Server
	proxy *faultproxy.Proxy
	// other is another way to it.
	other *faultproxy.Proxy
}

func startStub(t *testing.T, handler http.HandlerFunc, options ...func(*httptest.Server)) *stub {
	t.Helper()
	s := &stub{Server: httptest.NewUnstartedServer(handler)}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(t.Output(), "", 0)
	for _, option := range options {
		option(s.Server)
	}
	s.StartTLS()
	for _, proxy := range []**faultproxy.Proxy{&s.proxy, &s.other} {
		var err error
		if *proxy, err = faultproxy.Start(s.Listener.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := errors.Join(s.proxy.Stop(), s.other.Stop()); err != nil {
			t.Errorf("stop the proxies: %v", err)
		}
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func withoutHTTP2(s *httptest.Server) { s.EnableHTTP2 = false }

func withCertificate(c tls.Certificate) func(*httptest.Server) {
	return func(s *httptest.Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{c}} }
}

// kubeconfig reaches the stub by its proxy.
func (s *stub) kubeconfig() []byte { return kubeconfigFor(s.proxy.Addr(), s.Certificate().Raw) }

// outside reaches it by the other.
func (s *stub) outside() []byte { return kubeconfigFor(s.other.Addr(), s.Certificate().Raw) }

func kubeconfigFor(address string, ca []byte) []byte {
	caPEM := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}))
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config",
"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
"clusters": [{"name": "a", "cluster": {"server": "https://%s", "certificate-authority-data": "%s"}}],
"users": [{"name": "a", "user": {"token": "s3cret"}}]}`, address, caPEM)
}

func (s *stub) client(t *testing.T, redialEvery int) *client {
	return clientFor(t, s.kubeconfig(), redialEvery)
}

func clientFor(t *testing.T, config []byte, redialEvery int) *client {
	t.Helper()
	access, err := loopback.Parse(config)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(access, loopback, redialEvery)
	c.remainingRuns = redialEvery
	t.Cleanup(c.close)
	return c
}
