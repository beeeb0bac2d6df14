package probeconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// gate stands between the manager and its API server. After so many writes of the manager to a namespace it lets none
// through any more, so that what is stored stays as it is between two writes until the manager is killed. It can also hold
// scalings until several are under way, and leave a request unanswered.
type gate struct {
	server *httptest.Server

	mu       sync.Mutex
	left     map[string]int      // needs mu, as all below; writes that still get through, by namespace; no entry: all
	passing  map[string]int      // those that are on their way
	refused  map[string][]write  // those that weren't let through
	meetings map[string]*meeting // by namespace
	hangs    []*hang
}

// meeting is where scalings wait for each other.
type meeting struct {
	of      int
	there   []string // needs the gate's mu
	all     chan struct{}
	waiting bool
}

// throughGate starts the manager anew behind a gate, until the container ends.
func throughGate(ctx context.Context) *gate {
	GinkgoHelper()
	target, err := url.Parse(h.URL)
	Expect(err).NotTo(HaveOccurred())
	trusted := x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(h.CACert)).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	g := &gate{left: map[string]int{}, passing: map[string]int{}, refused: map[string][]write{}, meetings: map[string]*meeting{}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,                         // a watch's events must not wait
		ErrorLog:      log.New(io.Discard, "", 0), // of requests that a killed manager left
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.swallows(r) {
			return
		}
		to, is := writeOf(r)
		if !is {
			forward.ServeHTTP(w, r)
			return
		}
		if !g.enter(r.Context(), to) {
			http.Error(w, "not let through", http.StatusServiceUnavailable)
			return
		}
		answer := &answer{ResponseWriter: w}
		defer func() { g.leave(to, answer.status < http.StatusBadRequest) }()
		forward.ServeHTTP(answer, r)
	}))
	g.server.EnableHTTP2 = true
	g.server.StartTLS()
	restart := func(ctx context.Context, args ...string) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(h.StartManager(ctx, args...)).To(Succeed())
	}
	DeferCleanup(func(ctx context.Context) {
		restart(ctx) // first: the server waits for connections to end
		g.server.CloseClientConnections()
		g.server.Close()
		transport.CloseIdleConnections()
	})
	restart(ctx, "--kubeconfig="+g.kubeconfig(ctx))
	return g
}

// kubeconfig is the manager's, by way of the gate.
func (g *gate) kubeconfig(ctx context.Context) string {
	GinkgoHelper()
	direct, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.LoadFromFile(direct)
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = g.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	}
	path := filepath.Join(h.Dir, "gated.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// shutAfter lets so many more writes to a namespace through. Events don't count, nor do statuses, which end with the last.
func (g *gate) shutAfter(namespace string, writes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left[namespace] = writes
}

// open lets everything through again.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.left)
	clear(g.refused)
}

// holds says whether a namespace had all its writes and wanted one more.
func (g *gate) holds(namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.refused[namespace]) > 0 && g.passing[namespace] == 0
}

// wants are the writes to dependents that a namespace wanted beyond those it had. A config doesn't count: a cache that
// doesn't know yet that it is gone has its finalizer taken off once more.
func (g *gate) wants(namespace string) []write {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.refused[namespace]), func(w write) bool { return w.resource == "probeconfigs" })
}

// used says whether a namespace had all its writes.
func (g *gate) used(namespace string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	left, counted := g.left[namespace]
	return counted && left == 0 && g.passing[namespace] == 0
}

// meet holds the scalings in a namespace until there are so many at once; then all go on, for good.
func (g *gate) meet(namespace string, of int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meetings[namespace] = &meeting{of: of, all: make(chan struct{}), waiting: true}
}

// met are the objects whose scalings were under way at once.
func (g *gate) met(namespace string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.meetings[namespace].there...)
}

// enter lets a write through or not.
func (g *gate) enter(ctx context.Context, w write) bool {
	if w.subresource == "scale" {
		g.wait(ctx, w)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	left, counted := g.left[w.namespace]
	if counted && left == 0 {
		if w.subresource != "status" {
			g.refused[w.namespace] = append(g.refused[w.namespace], w)
		}
		return false
	}
	if counted && w.subresource != "status" {
		g.left[w.namespace]--
	}
	g.passing[w.namespace]++
	return true
}

// leave takes in that a write was answered. One that wrote nothing, because of a conflict, doesn't count.
func (g *gate) leave(w write, wrote bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passing[w.namespace]--
	if _, counted := g.left[w.namespace]; counted && !wrote && w.subresource != "status" {
		g.left[w.namespace]++
		delete(g.refused, w.namespace)
	}
}

// answer keeps the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (g *gate) wait(ctx context.Context, w write) {
	g.mu.Lock()
	m := g.meetings[w.namespace]
	if m == nil || !m.waiting {
		g.mu.Unlock()
		return
	}
	if m.there = append(m.there, w.name); len(m.there) == m.of {
		m.waiting = false
		close(m.all)
	}
	g.mu.Unlock()
	select {
	case <-m.all:
	case <-ctx.Done():
	}
}

// write is one to an object in a namespace.
type write struct{ namespace, resource, name, subresource string }

// writeOf reads a request; ok is false for what only reads, for Events, and for what is in no namespace.
func writeOf(r *http.Request) (w write, ok bool) {
	_, path, namespaced := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/")
	if r.Method == http.MethodGet || !namespaced || len(parts) < 3 || parts[1] == "events" {
		return w, false
	}
	w = write{namespace: parts[0], resource: parts[1], name: parts[2]}
	if len(parts) > 3 {
		w.subresource = parts[3]
	}
	return w, true
}
