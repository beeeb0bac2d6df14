package envoy

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resourcestack/autohealer/internal/xds"
)

func TestAnotherServerWithTheSameContentsCausesNoChurn(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	hosts := backends(t, 2)
	c.cluster(web, func(*clusterv3.Cluster) {}, hosts...)
	c.cluster("shop/db/5432", nil, hosts[0])
	c.publish()
	e := c.envoy(Listener{Name: "web", Cluster: web})
	g.Eventually(e.Churn, "10s").Should(Equal(Churn{Added: 3})) // and the static one
	before := e.Churn()
	stop := e.Load("web")

	c.stop()
	g.Eventually(func() int64 { return e.Stat("control_plane.connected_state") }, "10s").Should(BeZero())
	failures, updates := e.Stat("cluster_manager.cds.update_failure"), e.Stat("cluster_manager.cds.update_success")
	for name, cluster := range c.snapshot.Clusters { // a new process makes its messages anew
		cluster.Message = proto.CloneOf(cluster.Message)
		c.snapshot.Clusters[name] = cluster
	}
	c.start()
	g.Eventually(func() int64 { return e.Stat("cluster_manager.cds.update_failure") }, "30s").Should(BeNumerically(">=", failures+3),
		"a server that knows nothing yet accepts no stream")
	g.Expect(e.Stat("cluster_manager.cds.update_success")).To(Equal(updates))
	g.Expect(e.Hosts(web)).To(HaveLen(2))
	c.publish()
	c.acked(web, 1)
	sent, failed := stop()
	g.Expect(e.Churn()).To(Equal(before))
	g.Expect(failed).To(BeZero(), "of %d requests", sent)
	g.Expect(sent).To(BeNumerically(">", 100))
	t.Attr("measured", "requests during a restart of the xDS server: all answered")
}

func TestAnEnvoyIsServedOverIPv6(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{Address: "[::1]:0"})
	c.cluster(web, func(*clusterv3.Cluster) {}, backends(t, 1)...)
	c.publish()
	e := c.envoy(Listener{Name: "web", Cluster: web})
	c.acked(web, 1)
	g.Expect(e.Statuses("web", 1)).To(Equal(map[int]int{200: 1}))
}

func TestWhatSaysTheSameTouchesNothing(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	hosts := backends(t, 2)
	c.cluster(web, func(*clusterv3.Cluster) {}, hosts...)
	c.cluster("shop/db/5432", nil, hosts[0])
	c.publish()
	e := c.envoy(Listener{Name: "web", Cluster: web})
	g.Eventually(e.Churn, "10s").Should(Equal(Churn{Added: 3}))
	before, updates := e.Churn(), e.Stat("cluster_manager.cds.update_attempt")
	c.cluster(web, func(*clusterv3.Cluster) {}, hosts...)
	c.cluster("shop/db/5432", nil, hosts[0])
	c.publish()
	c.cluster("shop/new/80", nil, hosts[1]) // what came before has arrived when this has
	c.publish()
	g.Eventually(func() []Host { return e.Hosts("shop/new/80") }, "10s").Should(HaveLen(1))
	g.Expect(e.Churn()).To(Equal(Churn{before.Added + 1, before.Modified, before.Removed}))
	g.Expect(e.Stat("cluster_manager.cds.update_attempt")).To(Equal(updates + 1))
}

func TestAnEditTouchesOneClusterAndDropsNoRequest(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	hosts := backends(t, 2)
	c.cluster(web, func(*clusterv3.Cluster) {}, hosts...)
	for _, name := range []string{"shop/a/80", "shop/b/80", "shop/c/80"} {
		c.cluster(name, func(*clusterv3.Cluster) {}, hosts...)
	}
	c.publish()
	e := c.envoy(Listener{Name: "web", Cluster: web})
	g.Eventually(e.Churn, "10s").Should(Equal(Churn{Added: 5}))
	before := e.Churn()
	stop := e.Load("web")
	for threshold := uint32(6); threshold < 11; threshold++ {
		c.cluster(web, func(x *clusterv3.Cluster) { x.OutlierDetection.Consecutive_5Xx = wrapperspb.UInt32(threshold) }, hosts...)
		c.publish()
		g.Eventually(func() int64 { return e.Churn().Modified }, "10s").Should(Equal(before.Modified + int64(threshold) - 5))
		g.Eventually(func() int64 { return e.Stat("cluster_manager.warming_clusters") }, "10s").Should(BeZero())
	}
	c.cluster(web, nil, hosts...) // the policy is deleted: detection goes, the cluster stays
	c.publish()
	g.Eventually(func() int64 { return e.Churn().Modified }, "10s").Should(Equal(before.Modified + 6))
	g.Eventually(func() int64 { return e.Stat("cluster_manager.warming_clusters") }, "10s").Should(BeZero())
	sent, failed := stop()
	g.Expect(failed).To(BeZero(), "of %d requests", sent)
	g.Expect(e.Churn()).To(Equal(Churn{before.Added, before.Modified + 6, before.Removed}))
	g.Expect(e.Hosts(web)).To(HaveLen(2))
}

func TestARefusedClusterIsToldInEnvoysWordsAndKeepsItsEndpoints(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	hosts := backends(t, 3)
	c.cluster(web, func(*clusterv3.Cluster) {}, hosts[0])
	c.cluster("shop/db/5432", func(*clusterv3.Cluster) {}, hosts[1])
	c.publish()
	e := c.envoy(Listener{Name: "web", Cluster: web})
	c.acked(web, 1)

	c.cluster(web, func(x *clusterv3.Cluster) {
		x.OutlierDetection.BaseEjectionTime, x.OutlierDetection.MaxEjectionTime = durationpb.New(time.Minute), durationpb.New(time.Second)
	}, hosts[0])
	c.cluster("shop/db/5432", func(x *clusterv3.Cluster) { x.OutlierDetection.Consecutive_5Xx = wrapperspb.UInt32(7) }, hosts[1])
	c.publish()
	g.Eventually(func() []xds.Rejection { return c.server.Rejections()[web] }, "10s").Should(HaveLen(1))
	message := c.server.Rejections()[web][0].Message
	g.Expect(message).To(ContainSubstring("max_ejection_time"))
	t.Log(message)
	c.acked("shop/db/5432", 1)

	// The old cluster goes on, and its endpoints change.
	c.hosts(web, hosts[2])
	c.hosts("shop/db/5432", hosts[2])
	c.publish()
	g.Eventually(func() []Host { return e.Hosts("shop/db/5432") }, "10s").Should(Equal([]Host{{Address: hosts[2].Address}}))
	g.Eventually(func() []Host { return e.Hosts(web) }, "10s").Should(Equal([]Host{{Address: hosts[2].Address}}))
	status, by := e.Get("web")
	g.Expect(status).To(Equal(200))
	g.Expect(by).To(Equal(hosts[2].Address))
}

func TestAClusterGoesOnlyWhenItIsGone(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	hosts := backends(t, 1)
	c.cluster(web, nil, hosts...)
	c.cluster("shop/db/5432", nil, hosts...)
	c.publish()
	e := c.envoy()
	c.acked("shop/db/5432", 1)
	delete(c.snapshot.Clusters, "shop/db/5432")
	c.cluster("shop/new/80", nil, hosts...)
	c.publish()
	g.Eventually(func() []Host { return e.Hosts("shop/new/80") }, "10s").Should(HaveLen(1))
	g.Expect(e.Hosts("shop/db/5432")).To(HaveLen(1))
	c.publish("shop/db/5432")
	g.Eventually(func() []Host { return e.Hosts("shop/db/5432") }, "10s").Should(BeNil())
	g.Expect(e.Churn().Removed).To(Equal(int64(1)))
}
