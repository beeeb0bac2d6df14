package faultproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
)

// Watches stands between a client and the API server and can silence single watches: the connection stays, and nothing comes any
// more, as when a load balancer has forgotten about it. It counts what else is asked.
type Watches struct {
	server    *httptest.Server
	transport *http.Transport

	mu     sync.Mutex
	silent map[string]chan struct{} // by path; closed when it speaks again
	asked  map[string]int           // by method and path
}

// StartWatches forwards to an API server, whose certificate this CA signed, until Stop.
func StartWatches(apiServer string, ca []byte) (*Watches, error) {
	target, err := url.Parse(apiServer)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(ca) {
		return nil, errors.New("read the API server's CA: there is no certificate in it")
	}
	w := &Watches{
		transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true},
		silent:    map[string]chan struct{}{}, asked: map[string]int{},
	}
	w.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { w.count(r.In); r.SetURL(target) },
		Transport:      w.transport,
		FlushInterval:  -1, // a watch's events must not wait
		ModifyResponse: w.wrap,
	})
	w.server.EnableHTTP2 = true
	w.server.StartTLS()
	return w, nil
}

// Stop ends it, and every silence.
func (w *Watches) Stop() {
	w.mu.Lock()
	for path := range w.silent {
		close(w.silent[path])
		delete(w.silent, path)
	}
	w.mu.Unlock()
	w.server.CloseClientConnections()
	w.server.Close()
	w.transport.CloseIdleConnections()
}

// Kubeconfig writes one that goes this way and is the given one else.
func (w *Watches) Kubeconfig(direct, into string) error {
	config, err := clientcmd.LoadFromFile(direct)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = w.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	}
	return clientcmd.WriteToFile(*config, into)
}

// Silence lets nothing through any more on watches of a path, such as /api/v1/nodes.
func (w *Watches) Silence(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent[path] = make(chan struct{})
}

// Speak ends a silence; what was held back comes now.
func (w *Watches) Speak(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.silent[path])
	delete(w.silent, path)
}

// Asked gives the requests since it was asked last, by method and path, and how often each came. Watches aren't among them.
func (w *Watches) Asked() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = map[string]int{}
	return asked
}

func (w *Watches) count(r *http.Request) {
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[r.Method+" "+r.URL.Path]++
}

func (w *Watches) wrap(response *http.Response) error {
	if response.Request.URL.Query().Get("watch") == "true" {
		response.Body = &watched{ReadCloser: response.Body, proxy: w, path: strings.TrimSuffix(response.Request.URL.Path, "/"), gone: response.Request.Context()}
	}
	return nil
}

// watched is a watch's stream of events.
type watched struct {
	io.ReadCloser
	proxy *Watches
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
