package probeconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// rotateCredentials: while the API server answers, but not to who asks, nothing is counted and nothing is done.
func rotateCredentials() {
	It("not while the API server refuses credentials that were revoked or lost their rights, and new ones are probed with at once", func(ctx SpecContext) {
		one := newShoot(ctx)
		one.deploy(ctx, "kcm", 2)
		use := func(token string) {
			one.put(ctx, "internal", kubeconfigOf(one.internal.Addr(), withToken(token)))
			one.put(ctx, "external", kubeconfigOf(one.external.Addr(), withToken(token)))
		}
		first, revoke := newToken(ctx)
		use(first)
		one.start(ctx, one.patient())

		By("taking the right to GET /version from all but admins")
		give := takeVersion(ctx)
		Eventually(one.sides).WithContext(ctx).Should(HaveField("Internal.LastError", "Forbidden"))
		one.expectUntouched(ctx)
		give(ctx)

		By("revoking the credentials")
		revoke(ctx)
		Eventually(one.sides).WithContext(ctx).Should(HaveField("Internal.LastError", "Unauthorized"), "the API server remembers tokens for ten seconds")
		one.expectUntouched(ctx)

		By("rotating them")
		second, _ := newToken(ctx)
		use(second)
		Eventually(one.sides).WithContext(ctx).Should(And(
			HaveField("Internal.LastError", ""), HaveField("Internal.SuccessCount", BeEquivalentTo(1)), HaveField("External.SuccessCount", BeEquivalentTo(1))))
		Expect(one.scalings(ctx)).To(BeEmpty())
	}, SpecTimeout(specTime))

	It("not while the API server answers 429, and it is left alone for as long as it asks", func(ctx SpecContext) {
		one := newShoot(ctx)
		one.deploy(ctx, "kcm", 2)
		busy := newFront(one.external.Addr())
		token, _ := newToken(ctx)
		one.put(ctx, "external", kubeconfigOf(busy.server.Listener.Addr().String(), withToken(token), busy.trusted))
		one.start(ctx, one.patient())
		busy.refuse("4")
		Eventually(one.sides).WithContext(ctx).Should(HaveField("External.LastError", "TooManyRequests"))
		Eventually(busy.asked).WithContext(ctx).Should(HaveLen(3))
		asked := busy.asked()
		for i := range asked[1:] {
			Expect(asked[i+1].Sub(asked[i])).To(BeNumerically(">=", 4*time.Second))
		}
		one.expectUntouched(ctx)
		busy.refuse("")
		Expect(one.scalings(ctx)).To(BeEmpty())
	}, SpecTimeout(specTime))
}

// swallow: packets are lost, and nothing says so.
func swallow() {
	It("to 0 when nothing comes back from outside, not even a reset", func(ctx SpecContext) {
		one := newShoot(ctx)
		one.deploy(ctx, "kcm", 2)
		pc := one.probe(ctx)
		one.external.BreakNew(faultproxy.Swallow)
		one.external.BreakOpen(faultproxy.Swallow)
		Eventually(one.replicas).WithContext(ctx).Should(HaveKeyWithValue("kcm", BeZero()))
		Eventually(one.sides).WithContext(ctx).Should(And(HaveField("External.LastError", "Timeout"), HaveField("Internal.ErrorCount", BeZero())))
		Expect(h.Client.Delete(ctx, pc)).To(Succeed())
		one.expectReleased(ctx, map[string]int32{"kcm": 2})
	}, SpecTimeout(specTime))

	It("not when only a connection that was kept open has died, without a word", func(ctx SpecContext) {
		one := newShoot(ctx)
		one.deploy(ctx, "kcm", 2)
		one.start(ctx, one.patient())
		for _, way := range []*faultproxy.Proxy{one.external, one.internal} { // not one way twice: its new connection is being made
			accepted := way.Accepted()
			way.BreakOpen(faultproxy.Swallow)
			Eventually(way.Accepted).WithContext(ctx).Should(BeNumerically(">", accepted), "it dials anew")
		}
		one.expectUntouched(ctx)
		Expect(one.sides(ctx)).To(And(HaveField("Internal.LastError", ""), HaveField("External.LastError", "")), "not one failure counted")
	}, SpecTimeout(specTime))
}

// patient takes a slow machine for no failure.
func (s shoot) patient() *v1alpha1.ProbeConfig {
	pc := s.prober("prober", dependent("kcm", 0, 0))
	pc.Spec.ProbeInterval, pc.Spec.ProbeTimeout = "3s", "2900ms"
	return pc
}

// probe makes a config of a Deployment kcm, and returns once both ways work.
func (s shoot) probe(ctx context.Context) *v1alpha1.ProbeConfig {
	GinkgoHelper()
	return s.start(ctx, s.prober("prober", dependent("kcm", 0, 0)))
}

func (s shoot) start(ctx context.Context, pc *v1alpha1.ProbeConfig) *v1alpha1.ProbeConfig {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error { return h.Client.Create(ctx, pc) }).WithContext(ctx).Should(Succeed(), "once the account may")
	Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue), "the way from outside works")
	return pc
}

// sides are both sides' states, as the status tells them.
func (s shoot) sides(ctx context.Context) (sides struct{ Internal, External v1alpha1.ProbeState }, err error) {
	pc := s.prober("prober")
	err = h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
	if pc.Status.Internal != nil && pc.Status.External != nil {
		sides.Internal, sides.External = *pc.Status.Internal, *pc.Status.External
	}
	return sides, err
}

// expectUntouched: for some runs nothing is counted as a failure, and nothing scaled.
func (s shoot) expectUntouched(ctx context.Context) {
	GinkgoHelper()
	Consistently(s.sides, "4s").WithContext(ctx).Should(And(HaveField("Internal.ErrorCount", BeZero()), HaveField("External.ErrorCount", BeZero())))
	Expect(s.records(ctx)).To(BeEmpty())
	Expect(s.scalings(ctx)).To(BeEmpty())
}

// newToken is that of an account of the probed cluster, without rights of its own; revoke deletes the account.
func newToken(ctx context.Context) (token string, revoke func(context.Context)) {
	GinkgoHelper()
	admin := probedClient()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "prober-"}}
	Expect(admin.Create(ctx, account)).To(Succeed())
	request := &authenticationv1.TokenRequest{}
	Expect(admin.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token, func(ctx context.Context) { Expect(admin.Delete(ctx, account)).To(Succeed()) }
}

// takeVersion takes from all but admins of the probed cluster the right to GET /version, which is how a probe asks.
func takeVersion(ctx context.Context) (give func(context.Context)) {
	GinkgoHelper()
	admin := probedClient()
	var taken []*rbacv1.ClusterRoleBinding
	for _, name := range []string{"system:discovery", "system:public-info-viewer"} {
		binding := &rbacv1.ClusterRoleBinding{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: name}, binding)).To(Succeed())
		Expect(admin.Delete(ctx, binding)).To(Succeed())
		taken = append(taken, binding)
	}
	give = func(ctx context.Context) {
		for _, binding := range taken {
			binding.ResourceVersion, binding.UID = "", ""
			Expect(client.IgnoreAlreadyExists(admin.Create(ctx, binding))).To(Succeed())
		}
	}
	DeferCleanup(give)
	return give
}

func probedClient() client.Client {
	GinkgoHelper()
	admin, err := client.New(probed.Config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return admin
}

// front stands before the probed API server, as a load balancer that ends TLS, and may answer that it is busy.
type front struct {
	server *httptest.Server

	mu         sync.Mutex
	retryAfter string      // needs mu, as all below; "" lets requests through
	times      []time.Time // of those that it refused
}

func newFront(address string) *front {
	GinkgoHelper()
	trusted := x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(probed.CACert)).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: address})
	forward.Transport = transport
	f := &front{}
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if retryAfter := f.busy(); retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	DeferCleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
		transport.CloseIdleConnections()
	})
	return f
}

func (f *front) busy() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retryAfter != "" {
		f.times = append(f.times, time.Now())
	}
	return f.retryAfter
}

// refuse answers that it is busy from now on, or no more.
func (f *front) refuse(retryAfter string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retryAfter = retryAfter
}

func (f *front) asked() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.times...)
}

// trusted makes a kubeconfig trust the front.
func (f *front) trusted(c *api.Config) {
	for _, cluster := range c.Clusters {
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	}
}
