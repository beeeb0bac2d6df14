package outlierpolicy

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// slowly gives the manager's kubeconfig, by a way on which each piece of data takes so long, in each direction.
func slowly(ctx context.Context, delay time.Duration) string {
	GinkgoHelper()
	way, err := faultproxy.Start(strings.TrimPrefix(h.URL, "https://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(way.Stop()).To(Succeed()) })
	way.Delay(delay)
	direct, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.LoadFromFile(direct)
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + way.Addr()
	}
	into := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, into)).To(Succeed())
	return into
}

// halfBlind gives the manager's kubeconfig, by a way on which watches of some paths bring nothing until they are told to.
func halfBlind(ctx context.Context, paths ...string) (kubeconfig string, see func()) {
	GinkgoHelper()
	way, err := faultproxy.StartWatches(h.URL, h.CACert)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(way.Stop)
	for _, path := range paths {
		way.Silence(path)
	}
	direct, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(way.Kubeconfig(direct, kubeconfig)).To(Succeed())
	return kubeconfig, func() {
		for _, path := range paths {
			way.Speak(path)
		}
	}
}

var _ = Describe("A manager that starts with empty caches", Serial, func() {
	var (
		s      *service
		e      *envoy.Envoy
		before envoy.Churn
		stop   func() (sent, failed int64)
	)

	BeforeEach(func(ctx SpecContext) {
		s = serve(ctx, "slow", 3)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m")
		e = proxy(ctx, edge, clients, s.cluster())
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(3))
		s.backends[0].Answer(500)
		Eventually(func() []string { e.Statuses(s.cluster(), 3); return e.Ejected(s.cluster()) }).Should(Equal(s.addresses(0)))
		Eventually(func() map[int]int { return e.Statuses(s.cluster(), 6) }).Should(Equal(map[int]int{200: 6}), "Envoy's worker knows of the ejection")
		before = e.Churn()
		stop = e.Load(s.cluster())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Eventually(func() int64 { return e.Stat("control_plane.connected_state") }).Should(BeZero())
		DeferCleanup(func(ctx SpecContext) { // as it was for the specs after
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed())
		})
	})

	// unmoved: nothing was replaced or removed, nobody is back, no request was lost.
	unmoved := func() {
		GinkgoHelper()
		sent, failed := stop()
		Expect(failed).To(BeZero(), "of %d requests", sent)
		Expect(sent).To(BeNumerically(">", 100))
		Expect(e.Churn()).To(Equal(before))
		Expect(e.Ejected(s.cluster())).To(Equal(s.addresses(0)))
		AddReportEntry("requests during the restart, none lost", sent)
	}

	It("slowly, since the API server is slow, changes nothing in Envoy and drops no request", func(ctx SpecContext) {
		given := updates(e)
		Expect(h.StartManager(ctx, "--kubeconfig="+slowly(ctx, 200*time.Millisecond))).To(Succeed())
		Eventually(updates, 2*harness.Within).WithArguments(e).Should(BeNumerically(">", given), "it is served again")
		unmoved()
	}, NodeTimeout(6*harness.Within))

	It("and hears nothing of Services, endpoints or policies, serves nobody until it does", func(ctx SpecContext) {
		for _, path := range []string{"/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/apis/autohealer.resourcestack.com/v1alpha1/outlierpolicies"} {
			By(path)
			kubeconfig, see := halfBlind(ctx, path)
			given, failures := updates(e), e.Stat("cluster_manager.cds.update_failure")
			starting, cancel := context.WithTimeout(ctx, 10*time.Second)
			_ = h.StartManager(starting, "--kubeconfig="+kubeconfig) // whether that is ready is another test's
			cancel()
			Eventually(func() int64 { return e.Stat("cluster_manager.cds.update_failure") }).Should(BeNumerically(">", failures+2), "it is refused again and again")
			Expect(updates(e)).To(Equal(given))
			see()
			Eventually(updates, 2*harness.Within).WithArguments(e).Should(BeNumerically(">", given), "and served once all is known")
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
		}
		unmoved()
		Expect(h.StartManager(ctx)).To(Succeed())
	}, NodeTimeout(8*harness.Within))
})
