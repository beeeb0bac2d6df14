package outlierpolicy

import (
	"context"
	"net"
	"strconv"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// besides has an Envoy know a second replica.
func besides(other string) func(*bootstrapv3.Bootstrap) {
	GinkgoHelper()
	host, port, err := net.SplitHostPort(other)
	Expect(err).NotTo(HaveOccurred())
	number, err := strconv.ParseUint(port, 10, 16)
	Expect(err).NotTo(HaveOccurred())
	return func(b *bootstrapv3.Bootstrap) {
		for _, c := range b.GetStaticResources().GetClusters() {
			if c.GetName() != "autohealer_xds" {
				continue
			}
			replicas := c.GetLoadAssignment().GetEndpoints()[0]
			second := proto.CloneOf(replicas.GetLbEndpoints()[0])
			address := second.GetEndpoint().GetAddress().GetSocketAddress()
			address.Address, address.PortSpecifier = host, &corev3.SocketAddress_PortValue{PortValue: uint32(number)}
			replicas.LbEndpoints = append(replicas.LbEndpoints, second)
		}
	}
}

// wholeState has an Envoy speak the state of the world.
func wholeState(b *bootstrapv3.Bootstrap) {
	b.GetDynamicResources().GetAdsConfig().ApiType = corev3.ApiConfigSource_GRPC
}

var _ = Describe("Two replicas", Serial, func() {
	const standby = cluster.Component("standby")

	It("serve Envoys of both protocols, and whichever of them goes, nothing is removed or replaced and no request lost", func(ctx SpecContext) {
		s := serve(ctx, "replicas", 3)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m")
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { // as it was for the specs after
			Expect(h.StopComponent(standby)).To(Succeed())
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed())
		})
		other := cluster.FreeAddress()
		Expect(h.StartManager(ctx, "--leader-elect")).To(Succeed())
		Expect(h.StartReplica(ctx, standby, "--leader-elect", "--xds-bind-address="+other)).To(Succeed())

		listener := envoy.Listener{Name: s.cluster(), Cluster: s.cluster()}
		envoys := map[string]*envoy.Envoy{
			"delta":                  proxyChanged(ctx, listener, besides(other)),
			"the state of the world": proxyChanged(ctx, listener, besides(other), wholeState),
		}
		connected := func(e *envoy.Envoy) func() int64 {
			return func() int64 { return e.Stat("control_plane.connected_state") }
		}
		ejected := s.addresses(0)
		s.backends[0].Answer(500)
		before := map[string]envoy.Churn{}
		var stops []func() (sent, failed int64)
		for protocol, e := range envoys {
			Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(3), protocol)
			Eventually(func() []string { e.Statuses(s.cluster(), 3); return e.Ejected(s.cluster()) }).Should(Equal(ejected), protocol)
			Eventually(func() map[int]int { return e.Statuses(s.cluster(), 6) }).Should(Equal(map[int]int{200: 6}), "Envoy's worker knows of the ejection")
			before[protocol] = e.Churn()
			stops = append(stops, e.Load(s.cluster()))
		}
		unmoved := func(when string) {
			GinkgoHelper()
			for protocol, e := range envoys {
				Eventually(connected(e)).Should(BeEquivalentTo(1), "%s, %s", protocol, when)
				Expect(e.Churn()).To(Equal(before[protocol]), "%s, %s", protocol, when)
				Expect(e.Ejected(s.cluster())).To(Equal(ejected), "%s, %s", protocol, when)
			}
		}

		By("the leader goes, and another one comes")
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		unmoved("the leader is gone")
		Eventually(condition(ctx, s.namespace, "web", "Programmed"), 2*harness.Within).Should(Equal("True Programmed"))
		Expect(h.StartManager(ctx, "--leader-elect")).To(Succeed())
		Expect(h.StopComponent(standby)).To(Succeed())
		unmoved("the other is gone")
		for _, stop := range stops {
			sent, failed := stop()
			Expect(failed).To(BeZero(), "of %d requests", sent)
			Expect(sent).To(BeNumerically(">", 100))
			AddReportEntry("requests through an Envoy while both replicas went, none lost", sent)
		}

		By("an edit")
		s.detect(ctx, "consecutiveServerErrors: 4, maxEjectionPercent: 50")
		for protocol, e := range envoys {
			Eventually(e.Threshold, 2*harness.Within).WithArguments(s.cluster()).Should(Equal(4), protocol)
			after := e.Churn()
			Expect(after.Modified-before[protocol].Modified).To(BeEquivalentTo(1), protocol)
			Expect(after.Removed).To(Equal(before[protocol].Removed), protocol)
		}
	}, NodeTimeout(10*harness.Within))

	It("tell the leader of Envoys that are connected to the other", func(ctx SpecContext) {
		s := serve(ctx, "followed", 1)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50")
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { // as it was for the specs after
			Expect(h.StopComponent(standby)).To(Succeed())
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed())
		})
		other := cluster.FreeAddress()
		Expect(h.StartManager(ctx, "--leader-elect")).To(Succeed())
		Expect(h.StartReplica(ctx, standby, "--leader-elect", "--xds-bind-address="+other)).To(Succeed())
		Eventually(condition(ctx, s.namespace, "web", "Programmed"), 2*harness.Within).Should(Equal("Unknown NoProxies"))

		e := proxyChanged(ctx, envoy.Listener{Name: s.cluster(), Cluster: s.cluster()}, besides(other), func(b *bootstrapv3.Bootstrap) {
			for _, c := range b.GetStaticResources().GetClusters() {
				if replicas := c.GetLoadAssignment().GetEndpoints(); c.GetName() == "autohealer_xds" {
					replicas[0].LbEndpoints = replicas[0].LbEndpoints[1:]
				}
			}
		})
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(3))
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
		s.detect(ctx, "consecutiveServerErrors: 4, maxEjectionPercent: 50")
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(4))
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
		e.Stop()
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("Unknown NoProxies"))
	}, NodeTimeout(10*harness.Within))
})
