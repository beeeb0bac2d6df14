package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// proxy stands between the manager and the API server and can silence single watches: the connection stays, and nothing
// comes any more, as when a load balancer has forgotten about it.
type proxy struct {
	server *httptest.Server

	mu     sync.Mutex
	silent map[string]chan struct{} // by path; closed when it speaks again
}

func startProxy() *proxy {
	GinkgoHelper()
	target, err := url.Parse(w.URL)
	Expect(err).NotTo(HaveOccurred())
	trusted := x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(w.CACert)).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	p := &proxy{silent: map[string]chan struct{}{}}
	handler := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1, // a watch's events must not wait
		ModifyResponse: p.wrap,
		ErrorLog:       nil,
	}
	p.server = httptest.NewUnstartedServer(handler)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	DeferCleanup(func() {
		p.speakAll()
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// kubeconfig is the manager's, by way of the proxy.
func (p *proxy) kubeconfig(ctx context.Context) string {
	GinkgoHelper()
	direct, err := w.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.LoadFromFile(direct)
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = p.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	}
	path := filepath.Join(w.Dir, "proxied.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// silence lets nothing through any more on watches of a path.
func (p *proxy) silence(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent[path] = make(chan struct{})
}

// speak ends a silence; what was held back comes now.
func (p *proxy) speak(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.silent[path])
	delete(p.silent, path)
}

func (p *proxy) speakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path := range p.silent {
		close(p.silent[path])
		delete(p.silent, path)
	}
}

func (p *proxy) wrap(response *http.Response) error {
	if response.Request.URL.Query().Get("watch") == "true" {
		response.Body = &watched{ReadCloser: response.Body, proxy: p, path: strings.TrimSuffix(response.Request.URL.Path, "/"), gone: response.Request.Context()}
	}
	return nil
}

// watched is a watch's stream of events.
type watched struct {
	io.ReadCloser
	proxy *proxy
	path  string
	gone  context.Context //nolint:containedctx // it is the request's, whose body this is
}

func (b *watched) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	b.proxy.mu.Lock()
	silent := b.proxy.silent[b.path]
	b.proxy.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-b.gone.Done():
		}
	}
	return n, err
}
