package outlierpolicy

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("Hosts that know nothing but HTTP/2", Serial, func() {
	It("are spoken to as their Service or route says, and ejected when they fail; also when the route is gone and the manager is another", func(ctx SpecContext) {
		s := serve(ctx, "grpc", 0)
		for range 2 {
			s.backends = append(s.backends, envoy.NewHTTP2BackendOn(GinkgoTB(), hostIP))
		}
		s.register(ctx)
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: grpc}, spec: {ports: [{name: http, port: 80, appProtocol: kubernetes.io/h2c}]}}")
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m")
		e := proxy(ctx, edge, clients, s.cluster())
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(2))
		Eventually(func() map[int]int { return e.Statuses(s.cluster(), 4) }).Should(Equal(map[int]int{200: 4}))
		s.backends[0].Answer(500)
		Eventually(func() []string { e.Statuses(s.cluster(), 3); return e.Ejected(s.cluster()) }).Should(Equal(s.addresses(0)))
		s.backends[0].Answer(200)

		By("an HTTPProxy's h2c, of a Service that says nothing")
		apply(ctx, routes)
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/httpproxies.projectcontour.io")
		Expect(err).NotTo(HaveOccurred())
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {name: api, namespace: grpc}, spec: {ports: [{name: http, port: 80}]}}")
		apply(ctx, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api, namespace: grpc, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`, s.backends[1].Port, hostIP))
		apply(ctx, `
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: api, namespace: grpc}
spec: {routes: [{services: [{name: api, port: 80, protocol: h2c}]}]}
`)
		apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: api, namespace: grpc}
spec:
  targetRefs: [{group: projectcontour.io, kind: HTTPProxy, name: api}]
  outlierDetection: {consecutiveServerErrors: 5, maxEjectionPercent: 50}
`)
		const ofRoute = "grpc/api/80@httpproxy/api"
		byRoute := proxy(ctx, edge, clients, ofRoute)
		Eventually(func() []envoy.Host { return byRoute.Hosts(ofRoute) }, 2*harness.Within).Should(HaveLen(1))
		Eventually(func() map[int]int { return byRoute.Statuses(ofRoute, 2) }).Should(Equal(map[int]int{200: 2}))

		By("a manager that starts without the route's kind")
		deletePolicy(ctx, "grpc", "api")
		Eventually(byRoute.Threshold).WithArguments(ofRoute).ShouldNot(Equal(5), "detection is gone")
		before := byRoute.Churn()
		Expect(h.StopComponent(harness.Manager)).To(Succeed()) // which would see the route go, and its cluster with it
		_, err = h.Kubectl(ctx, "delete", "crd", "httpproxies.projectcontour.io")
		Expect(err).NotTo(HaveOccurred())
		given := updates(byRoute)
		Expect(h.StartManager(ctx)).To(Succeed())
		Eventually(updates).WithArguments(byRoute).Should(BeNumerically(">", given), "none is accepted before")
		late := stream(ctx, edge)
		Eventually(func() []string { return late.Hosts(ofRoute) }).Should(Equal(s.addresses(1)))
		Expect(late.Clusters()[ofRoute].GetTypedExtensionProtocolOptions()).NotTo(BeEmpty(), "an Envoy that starts later speaks HTTP/2, too")
		Expect(byRoute.Churn()).To(Equal(before))
		Expect(byRoute.Statuses(ofRoute, 4)).To(Equal(map[int]int{200: 4}))
	}, NodeTimeout(8*harness.Within))
})
