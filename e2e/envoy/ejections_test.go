package envoy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// freePort is one that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// named is a certificate for a DNS name and some uses.
func (a *Authority) named(name string, uses ...x509.ExtKeyUsage) *tls.Certificate {
	key, cert := a.sign(&x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: uses})
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func TestOnlyTheServerMayAskWhomEnvoyHasEjected(t *testing.T) {
	ca, dir, port := NewAuthority(t), t.TempDir(), freePort(t)
	c := serve(t, ca.server())
	ca.Write(dir, everywhere, ca.PEM())
	Start(t, Options{Bootstrap: secured(c, dir, "--ejections-port="+port, "--ejections-address=::", "--admin-port="+freePort(t)), Change: impatient})
	askAt := func(host string, shown *tls.Certificate, method, path string) (int, error) {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} // what Envoy shows is the manager's to judge
		if shown != nil {
			config.Certificates = []tls.Certificate{*shown}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, method, "https://"+net.JoinHostPort(host, port)+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}).Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	ask := func(shown *tls.Certificate, method, path string) (int, error) {
		return askAt("127.0.0.1", shown, method, path)
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	server := ca.named("xds.test", both...)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(poll) { // Envoy listens once it is done waiting for clusters
		if status, err := ask(server, http.MethodGet, "/clusters?format=json"); err == nil && status == http.StatusOK {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the server gets %d, %v", status, err)
		}
	}
	if status, err := askAt("::1", server, http.MethodGet, "/clusters?format=json"); err != nil || status != http.StatusOK {
		t.Errorf("over IPv6 it gets %d, %v", status, err)
	}
	for name, shown := range map[string]*tls.Certificate{
		"nobody": nil, "another name": ca.named("web.test", both...), "another CA's": NewAuthority(t).named("xds.test", both...),
		"one that isn't for clients": ca.named("xds.test", x509.ExtKeyUsageServerAuth),
	} {
		if status, err := ask(shown, http.MethodGet, "/clusters?format=json"); err == nil {
			t.Errorf("%s gets %d", name, status)
		}
	}
	for request, want := range map[[2]string]int{
		{http.MethodGet, "/stats?format=json"}: 200, {http.MethodPost, "/clusters"}: 404, {http.MethodPost, "/quitquitquit"}: 404,
		{http.MethodGet, "/config_dump"}: 404, {http.MethodGet, "/"}: 404, {http.MethodGet, "/clusters/../certs"}: 404,
	} {
		if status, err := ask(server, request[0], request[1]); err != nil || status != want {
			t.Errorf("%s: %d, %v", request, status, err)
		}
	}
}
