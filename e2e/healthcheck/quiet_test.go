package healthcheck

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// looks is a check that counts how often it is run.
type looks struct{ atomic.Int64 }

// Check counts.
func (l *looks) Check(context.Context, types.NamespacedName) (*healthcheck.SingleCheckResult, error) {
	l.Add(1)
	return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionTrue}, nil
}

// front stands before a cluster's API server, and knows what gets there.
type front struct {
	mu       sync.Mutex
	requests map[string]int // needs mu; by method and path
}

// before puts one before a cluster. It gives the kubeconfig to get there.
func before(of *cluster.Cluster) (f *front, kubeconfig string) {
	host, err := url.Parse(of.Config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(of.Config)
	Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(host)
		r.Out.Header.Del("Authorization")
	}}
	f = &front{requests: map[string]int{}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests[r.Method+" "+r.URL.Path]++
		f.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	DeferCleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return f, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: '%s', certificate-authority-data: %s}}]\nusers: [{name: u, user: {token: unused}}]",
		server.URL, base64.StdEncoding.EncodeToString(authority))
}

// take gives the requests since it was called last.
func (f *front) take() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.requests
	f.requests = map[string]int{}
	return taken
}

var _ = Describe("a program whose checks look again and again", func() {
	It("asks and writes nothing at the seed while nothing changes, and lists the shoot's nodes once a look", func(ctx SpecContext) {
		namespace := place(ctx)
		put(ctx, seedClient, namespace, healthyResource)
		putDeployment(ctx, seedClient, namespace, "machine-controller-manager", true)
		putNode(ctx, "quiet-1")
		putNode(ctx, "quiet-2")
		atShoot, kubeconfig := before(shoot)
		putSecret(ctx, namespace, []byte(kubeconfig))
		putWorker(ctx, namespace)
		counter := &looks{}
		p := run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(5*time.Second), healthcheck.WithLoopbackShoots()).
			Check("SystemComponentsHealthy", "mcm-shoot", healthcheck.CheckManagedResource("mcm-shoot")).
			Check("EveryNodeReady", "mcm", healthcheck.CheckSeedDeployment("machine-controller-manager")).
			Check("EveryNodeReady", "nodes", healthcheck.SufficientNodesAvailable()).
			Check("EveryNodeReady", "looks", func() healthcheck.HealthCheck { return counter }))
		Eventually(condition(ctx, worker, namespace, "SystemComponentsHealthy")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(condition(ctx, worker, namespace, "EveryNodeReady")).Should(is("True", "HealthCheckSuccessful", `^\(3/3\)`))

		more := func(n int64) {
			target := counter.Load() + n
			Eventually(counter.Load).WithTimeout(time.Minute).Should(BeNumerically(">=", target))
		}
		more(2) // what its own writes set off is over
		reads, writes, questions, version := p.reads.Load(), p.writes.Load(), p.questions.Load(), stored(ctx, worker, namespace).GetResourceVersion()
		atShoot.take()
		begun := counter.Load()
		more(4)
		Expect(p.writes.Load()-writes).To(BeZero(), "writes")
		Expect(p.reads.Load()-reads).To(BeZero(), "reads")
		Expect(stored(ctx, worker, namespace).GetResourceVersion()).To(Equal(version))
		Expect(p.questions.Load()-questions).To(BeNumerically("<=", 2*4*3), "two of each of four kinds, every ten seconds")
		requests := atShoot.take()
		Expect(requests).To(HaveLen(1))
		Expect(requests).To(HaveKeyWithValue("GET /api/v1/nodes", BeNumerically("~", counter.Load()-begun, 1)))
	}, NodeTimeout(3*time.Minute))
})
