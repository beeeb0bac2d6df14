package outlierpolicy

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("An OutlierPolicy that kubectl applies", func() {
	It("has Envoy eject a host that fails, take it back, and leave all hosts alone once it is deleted", func(ctx SpecContext) {
		s := serve(ctx, "ejecting", 3)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 2s, maxEjectionTime: 2s")
		e := proxy(ctx, edge, clients, s.cluster())
		ejected := func() []string { return e.Ejected(s.cluster()) }
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(3))
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
		Expect(e.Statuses(s.cluster(), 30)).To(Equal(map[int]int{200: 30}))
		Expect(ejected()).To(BeEmpty())

		By("ejecting the one that answers with three errors in a row, and no other")
		s.backends[1].Answer(500)
		Expect(e.Statuses(s.cluster(), 6)).To(Equal(map[int]int{200: 4, 500: 2}), "each host in its turn: two errors eject nobody")
		Expect(ejected()).To(BeEmpty())
		Expect(e.Statuses(s.cluster(), 3)).To(Equal(map[int]int{200: 2, 500: 1}))
		Eventually(ejected).Should(Equal(s.addresses(1)))
		Eventually(func() []envoy.Event { return e.Events(s.cluster()) }).ShouldNot(BeEmpty(), "envoy-bootstrap has ejections logged")
		event := e.Events(s.cluster())[0]
		Expect([]any{event.Type, event.Action, event.UpstreamURL, event.Enforced}).To(Equal([]any{"CONSECUTIVE_5XX", "EJECT", s.backends[1].Address, true}))

		By("taking it back once its time is over")
		s.backends[1].Answer(200)
		Eventually(ejected).Should(BeEmpty())
		hits := s.backends[1].Hits()
		Eventually(func() int64 { e.Statuses(s.cluster(), 3); return s.backends[1].Hits() }).Should(BeNumerically(">", hits), "it gets requests again")

		By("leaving the cluster without detection when the policy goes")
		churn := e.Churn()
		deletePolicy(ctx, s.namespace, "web")
		Eventually(func() int64 { return e.Churn().Modified }).Should(Equal(churn.Modified + 1))
		Eventually(func() int64 { return e.Stat("cluster_manager.warming_clusters") }).Should(BeZero())
		Expect(e.Churn().Removed).To(Equal(churn.Removed))
		s.backends[1].Answer(500)
		Expect(e.Statuses(s.cluster(), 60)).To(Equal(map[int]int{200: 40, 500: 20}))
		Expect(ejected()).To(BeEmpty())

		By("taking the cluster away with the Service")
		Expect(h.Client.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"}})).To(Succeed())
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(BeNil())
	}, NodeTimeout(4*harness.Within))

	It("in mode Observe has Envoy count, and eject nobody", func(ctx SpecContext) {
		s := serve(ctx, "observing", 2)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms", "mode: Observe")
		e := proxy(ctx, edge, clients, s.cluster())
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(2))
		s.backends[0].Answer(500)
		Expect(e.Statuses(s.cluster(), 40)).To(Equal(map[int]int{200: 20, 500: 20}))
		detected := func() int64 {
			return e.Stat("cluster." + s.cluster() + ".outlier_detection.ejections_detected_consecutive_5xx")
		}
		Eventually(detected).Should(BeNumerically(">", 0))
		Expect(e.Ejected(s.cluster())).To(BeEmpty())
		Expect(e.Stat("cluster." + s.cluster() + ".outlier_detection.ejections_enforced_total")).To(BeZero())
	}, NodeTimeout(2*harness.Within))

	It("follows the endpoints", func(ctx SpecContext) {
		s := serve(ctx, "following", 2)
		s.detect(ctx, "consecutiveServerErrors: 5, maxEjectionPercent: 50")
		e := proxy(ctx, edge, clients, s.cluster())
		hosts := func() (all []string) {
			for _, host := range e.Hosts(s.cluster()) {
				all = append(all, host.Address)
			}
			return all
		}
		Eventually(hosts).Should(ConsistOf(s.addresses(0, 1)))
		_, err := h.Kubectl(ctx, "-n", s.namespace, "patch", "endpointslice", "web-0", "--type=json",
			"-p", `[{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": false}]`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(hosts).Should(ConsistOf(s.addresses(1)))
	}, NodeTimeout(2*harness.Within))
})
