package weederconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// countingProxy stands between the manager and the API server, counts what is asked, and can hold back watches and requests,
// or answer them itself.
type countingProxy struct {
	server *httptest.Server

	mu      sync.Mutex
	asked   map[string]int // needs mu, as all below; by verb and resource; of watches those that are open, since each begins anew after minutes
	last    time.Time      // of what was asked
	stalled map[string]chan struct{}
	before  func(*http.Request)
	answers answers
	refused map[int]int // by status code: what it answered itself
}

// answers gives the status code that the proxy itself answers a request with, 0 to let it through; lost, that it is let through
// and its answer lost on the way.
type answers func(*http.Request) (code int, lost bool)

// startProxy makes one for a component, which is stopped before it.
func startProxy(of cluster.Component) *countingProxy {
	GinkgoHelper()
	target, err := url.Parse(h.URL)
	Expect(err).NotTo(HaveOccurred())
	trusted := x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(h.CACert)).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	p := &countingProxy{asked: map[string]int{}, stalled: map[string]chan struct{}{}, refused: map[int]int{}}
	p.server = httptest.NewUnstartedServer(p.inFrontOf(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("watch") == "true" {
				resource := resourceOf(r.Request.URL.Path)
				r.Body = &watched{ReadCloser: r.Body, gate: func() <-chan struct{} { return p.gate(resource) }, over: func() { p.over(resource) }}
			}
			return nil
		},
		Transport:     transport,
		FlushInterval: -1, // a watch's events must not wait
		ErrorLog:      log.New(GinkgoWriter, "", 0),
	}))
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	DeferCleanup(func() {
		// The component first: it would connect anew, and the server waits for connections to end.
		Expect(h.StopComponent(of)).To(Succeed())
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// inFrontOf counts requests, and answers some itself.
func (p *countingProxy) inFrontOf(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.count(r)
		code, lost := p.answer(r)
		if code == 0 {
			server.ServeHTTP(w, r)
			return
		}
		if lost {
			server.ServeHTTP(httptest.NewRecorder(), r)
		}
		refuse(w, code)
	})
}

// refuse answers as an API server does that is overloaded, or has trouble with etcd.
func refuse(w http.ResponseWriter, code int) {
	failure := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "the test refuses it", 0, true)
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure.Status()) // nobody listens any more
}

// answerBy has requests answered by f; nil lets all through.
func (p *countingProxy) answerBy(f answers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = f
}

func (p *countingProxy) answer(r *http.Request) (code int, lost bool) {
	p.mu.Lock()
	f := p.answers
	p.mu.Unlock()
	if f == nil {
		return 0, false
	}
	code, lost = f(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if code != 0 {
		p.refused[code]++
	}
	return code, lost
}

// refusals are how many requests were answered with a status code by the proxy itself.
func (p *countingProxy) refusals(code int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused[code]
}

func (p *countingProxy) count(r *http.Request) {
	verb := r.Method
	if r.URL.Query().Get("watch") == "true" {
		verb = "WATCH"
	}
	what := verb + " " + resourceOf(r.URL.Path)
	p.mu.Lock()
	p.asked[what]++
	if !goesOn(what) {
		p.last = time.Now()
	}
	before := p.before
	p.mu.Unlock()
	if before != nil {
		before(r)
	}
}

func (p *countingProxy) over(watched string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked["WATCH "+watched]--
}

// goesOn: whatever happens, Events and leases are written, and the API server is asked every eight seconds whether the Guardrails
// in force are still those that are stored, and every five whose installation the cluster is.
func goesOn(what string) bool {
	return strings.HasSuffix(what, " events") || strings.Contains(what, "leases") ||
		slices.Contains([]string{"GET guardrails", "GET customresourcedefinitions", "GET namespaces", "GET validatingwebhookconfigurations"}, what)
}

// quiet is for how long nothing was asked.
func (p *countingProxy) quiet() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.last)
}

// beforeEach has f called before each request goes on; nil calls nobody.
func (p *countingProxy) beforeEach(f func(*http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = f
}

// stall lets watches of a resource tell nothing more until resume, without ending them.
func (p *countingProxy) stall(resource string) (resume func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled[resource] = gate
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.stalled, resource)
		close(gate)
	})
}

func (p *countingProxy) gate(resource string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalled[resource]
}

// watched is the body of a watch that can be held back.
type watched struct {
	io.ReadCloser
	gate func() <-chan struct{}
	over func()
}

func (w *watched) Close() error {
	w.over()
	return w.ReadCloser.Close()
}

func (w *watched) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	if gate := w.gate(); gate != nil && err == nil {
		<-gate
	}
	return n, err
}

// resourceOf is a path's resource with its subresource, without group, namespace and name.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 2 // api/v1
	if parts[0] == "apis" {
		skip = 3
	}
	parts = parts[min(skip, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch {
	case len(parts) == 0:
		return "/"
	case len(parts) > 2:
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

// since gives what was asked after a count was taken, but for what goes on anyway.
func (p *countingProxy) since(before map[string]int) map[string]int {
	more := map[string]int{}
	for what, n := range p.snapshot() {
		if d := n - before[what]; d > 0 && !goesOn(what) {
			more[what] = d
		}
	}
	return more
}

func (p *countingProxy) snapshot() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]int{}
	for what, n := range p.asked {
		all[what] = n
	}
	return all
}

// kubeconfig is the manager's, by way of the proxy.
func (p *countingProxy) kubeconfig(ctx context.Context) string {
	GinkgoHelper()
	direct, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.LoadFromFile(direct)
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = p.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	}
	path := filepath.Join(h.Dir, "by-"+p.server.Listener.Addr().String()+".kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// goroutines is how many the manager has.
func goroutines(ctx context.Context) int {
	GinkgoHelper()
	stacks, err := h.Goroutines(ctx, harness.Manager)
	Expect(err).NotTo(HaveOccurred())
	return len(stacks)
}
