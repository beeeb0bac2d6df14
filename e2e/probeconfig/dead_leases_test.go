package probeconfig

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

// stop ends a node's renewals.
func (k *kubelets) stop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.clocks, name)
}

// goOn lets a node renew its lease again.
func (k *kubelets) goOn(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clocks[name] = 0
}

// says writes a condition of a node.
func (k *kubelets) says(ctx context.Context, name string, conditionType corev1.NodeConditionType, status corev1.ConditionStatus) {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(k.client.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	node.Status.Conditions = []corev1.NodeCondition{{Type: conditionType, Status: status}}
	Expect(k.client.Status().Update(ctx, node)).To(Succeed())
}

// throttle gives a kubeconfig of a way to the probed API server on which lists are answered with 429 while that is set.
func throttle() (kubeconfig []byte, lists *atomic.Bool) {
	GinkgoHelper()
	target, err := url.Parse(probed.URL)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(probed.Config)
	Expect(err).NotTo(HaveOccurred())
	lists = &atomic.Bool{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the transport has its own
		},
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lists.Load() && r.URL.Path != "/version" {
			http.Error(w, "throttled", http.StatusTooManyRequests)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	DeferCleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return kubeconfigOf(server.Listener.Addr().String(), withToken("any"), func(c *api.Config) {
		for _, cluster := range c.Clusters {
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		}
	}), lists
}

var _ = Describe("nodes that don't come back", Ordered, func() {
	// Both probe the same cluster of three nodes, of which two stop to renew their leases. The one has a short maximum, and the lists
	// of the other can be throttled.
	var briefly, lasting shoot
	var lists *atomic.Bool
	var nodes *kubelets
	var watching *oracle.Oracle

	BeforeAll(func(ctx SpecContext) {
		watching = underOracle(ctx, nil)
		c, err := client.New(probed.Config, client.Options{Scheme: harness.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		emptyProbed(ctx, c)
		nodes = &kubelets{client: c, clocks: map[string]time.Duration{}}
		for _, name := range []string{"dead-0", "dead-1", "steady"} {
			nodes.join(ctx, name, 0)
		}
		running, stop := context.WithCancel(context.Background())
		var renewing sync.WaitGroup
		renewing.Go(func() { nodes.run(running) })
		DeferCleanup(func(ctx context.Context) {
			stop()
			renewing.Wait()
			emptyProbed(ctx, c)
		})
		capAll := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "dead-leases"}, Spec: v1alpha1.GuardrailSpec{Limits: &v1alpha1.GuardrailLimits{
			MaxScaledDownTargets: ptr.To(intstr.FromString("100%")),
		}}}
		Expect(h.Client.Create(ctx, capAll)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, capAll)).To(Succeed()) })

		var throttled []byte
		throttled, lists = throttle()
		briefly, lasting = newShoot(ctx), newShoot(ctx)
		lasting.put(ctx, "external", throttled)
		for s, longest := range map[*shoot]v1alpha1.Duration{&briefly: "80s", &lasting: ""} {
			s.deploy(ctx, "kcm", 2)
			pc := s.prober("prober", dependent("kcm", 0, 0))
			pc.Spec.NodeLeases = &v1alpha1.NodeLeases{MonitorGraceDuration: "28s", MaxProtectionDuration: longest}
			Expect(h.Client.Create(ctx, pc)).To(Succeed())
			Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
			closeBreaker(ctx, pc)
		}
	}, NodeTimeout(specTime))

	status := func(ctx context.Context, s shoot) (v1alpha1.ProbeConfigStatus, error) {
		pc := s.prober("prober")
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
		return pc.Status, err
	}
	seen := func(ctx context.Context, s shoot) (v1alpha1.NodeLeasesState, error) {
		is, err := status(ctx, s)
		return ptr.Deref(is.NodeLeases, v1alpha1.NodeLeasesState{}), err
	}
	reason := func(ctx context.Context, s shoot, conditionType string) (string, error) {
		is, err := status(ctx, s)
		if c := meta.FindStatusCondition(is.Conditions, conditionType); c != nil {
			return c.Reason, err
		}
		return "", err
	}
	up, down := map[string]int32{"kcm": 2}, map[string]int32{"kcm": 0}

	It("because of a fault of their own aren't cut off, and nothing is scaled down", func(ctx SpecContext) {
		for _, name := range []string{"dead-0", "dead-1"} {
			nodes.says(ctx, name, "KernelDeadlock", corev1.ConditionTrue)
			nodes.lose(ctx, name)
		}
		for _, s := range []shoot{briefly, lasting} {
			Eventually(seen).WithContext(ctx).WithArguments(s).Should(Equal(v1alpha1.NodeLeasesState{Candidates: 1, LeftOut: 2}), s.tells(ctx))
		}
		Consistently(lasting.replicas, "15s").WithContext(ctx).Should(Equal(up), "in which two leases are seen not to move")
		for _, name := range []string{"dead-0", "dead-1"} {
			nodes.says(ctx, name, corev1.NodeReady, corev1.ConditionUnknown)
			nodes.goOn(name)
		}
		for _, s := range []shoot{briefly, lasting} {
			Expect(s.scalings(ctx)).To(BeEmpty())
			Eventually(seen).WithContext(ctx).WithArguments(s).Should(Equal(v1alpha1.NodeLeasesState{Candidates: 3}), s.tells(ctx))
		}
	}, SpecTimeout(specTime))

	It("for any other reason protect their cluster, and not for good, as is told", func(ctx SpecContext) {
		for _, s := range []shoot{briefly, lasting} {
			watching.CutOff(s.namespace)
		}
		nodes.stop("dead-0")
		nodes.stop("dead-1")
		for _, s := range []shoot{briefly, lasting} {
			Eventually(s.replicas).WithContext(ctx).Should(Equal(down), s.tells(ctx))
		}
		lists.Store(true)
		Eventually(briefly.replicas).WithContext(ctx).Should(Equal(up), briefly.tells(ctx))
		Eventually(reason).WithContext(ctx).WithArguments(briefly, "LeaseProtectionExpired").Should(Equal("MaxProtectionDurationExceeded"))
		Eventually(func(ctx context.Context) (told []string, err error) {
			var all eventsv1.EventList
			err = h.Client.List(ctx, &all, client.InNamespace(briefly.namespace))
			for _, e := range all.Items {
				told = append(told, e.Regarding.Kind+" "+e.Type+" "+e.Reason)
			}
			return told, err
		}).WithContext(ctx).Should(ContainElement("ProbeConfig Warning MaxProtectionDurationExceeded"))
	}, SpecTimeout(specTime))

	It("are waited for while their leases can't be listed", func(ctx SpecContext) {
		Eventually(reason).WithContext(ctx).WithArguments(lasting, "LeasesUnreadable").Should(Equal("TooManyRequests"))
		is, err := status(ctx, lasting)
		Expect(err).NotTo(HaveOccurred())
		Expect(meta.FindStatusCondition(is.Conditions, "LeasesUnreadable").Message).To(ContainSubstring("There what is scaled down stays so until "))
		Consistently(lasting.replicas, "25s").WithContext(ctx).Should(Equal(down), "for longer than three runs, and for what a target must be healthy")
		lists.Store(false)
		Eventually(reason).WithContext(ctx).WithArguments(lasting, "LeasesUnreadable").Should(BeEmpty())
		Expect(lasting.replicas(ctx)).To(Equal(down))
	}, SpecTimeout(specTime))

	It("and do at last are as any others", func(ctx SpecContext) {
		for _, s := range []shoot{briefly, lasting} {
			watching.Mend(s.namespace)
		}
		nodes.goOn("dead-0")
		nodes.goOn("dead-1")
		Eventually(lasting.replicas).WithContext(ctx).Should(Equal(up), lasting.tells(ctx))
		Eventually(reason).WithContext(ctx).WithArguments(briefly, "LeaseProtectionExpired").Should(BeEmpty())
		for _, s := range []shoot{briefly, lasting} {
			Expect(s.scalings(ctx)).To(Equal([]string{"kcm 0", "kcm 2"}), "and no dead lease began anything anew")
		}
	}, SpecTimeout(specTime))
})
