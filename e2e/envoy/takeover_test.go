package envoy

import (
	"net"
	"strconv"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/internal/xds"
)

// TestAReplicaThatComesLaterTakesOverEnvoys: without a loss, since an Envoy keeps what it has, and its new stream brings what differs.
func TestAReplicaThatComesLaterTakesOverEnvoys(t *testing.T) {
	g := NewWithT(t)
	second := cluster.FreeAddress()
	host, port, err := net.SplitHostPort(second)
	g.Expect(err).NotTo(HaveOccurred())
	number, err := strconv.ParseUint(port, 10, 16)
	g.Expect(err).NotTo(HaveOccurred())

	first, hosts := serve(t, xds.Options{MaxConnectionAge: time.Second}), backends(t, 3)
	first.cluster(web, func(*clusterv3.Cluster) {}, hosts...)
	first.publish()
	e := Start(t, Options{
		Bootstrap: []string{"--server", first.options.Address, "--plaintext"}, Listeners: []Listener{{Name: "web", Cluster: web}},
		Change: func(b *bootstrapv3.Bootstrap) {
			for _, c := range b.GetStaticResources().GetClusters() {
				if c.GetName() == "autohealer_xds" {
					replicas := c.GetLoadAssignment().GetEndpoints()[0]
					other := proto.CloneOf(replicas.GetLbEndpoints()[0])
					address := other.GetEndpoint().GetAddress().GetSocketAddress()
					address.Address, address.PortSpecifier = host, &corev3.SocketAddress_PortValue{PortValue: uint32(number)}
					replicas.LbEndpoints = append(replicas.LbEndpoints, other)
				}
			}
		},
	})
	first.acked(web, 1)
	hosts[0].Answer(500)
	g.Eventually(func() []string { e.Statuses("web", 3); return e.Ejected(web) }, "10s").Should(Equal(addresses(hosts[0])))
	g.Eventually(func() map[int]int { return e.Statuses("web", 6) }, "10s").Should(Equal(map[int]int{200: 6}))
	before, stop := e.Churn(), e.Load("web")

	later := serve(t, xds.Options{Address: second, MaxConnectionAge: time.Hour})
	later.snapshot = first.snapshot
	later.publish()
	g.Eventually(func() [2]int {
		connected, acked := later.server.CountProxies([]string{web})
		return [2]int{connected, acked}
	}, "30s").Should(Equal([2]int{1, 1}), "it comes when its connection is too old")
	g.Expect(e.Churn()).To(Equal(before), "it was told nothing anew")
	g.Expect(e.Ejected(web)).To(Equal(addresses(hosts[0])))
	sent, failed := stop()
	g.Expect(failed).To(BeZero(), "of %d requests", sent)
}
