package xds

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	testclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

// silent is a stream of the delta protocol that subscribes to all clusters, and sends no ACK by itself.
func silent(t *testing.T, conn *grpc.ClientConn) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType}); err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestProxiesThatSeeDifferentClustersAreCountedByWhatTheySee(t *testing.T) {
	g := NewWithT(t)
	w, ca, _ := startTLS(t) // has tenant/web/80 and shop/web/80
	w.serve("post/web/80", 5, 3001)
	w.set()
	all := []string{"tenant/web/80", "shop/web/80", "post/web/80"}
	counts := func(names ...string) func() [2]int {
		return func() [2]int { connected, acked := w.server.CountProxies(names); return [2]int{connected, acked} }
	}
	g.Expect(counts(all...)()).To(Equal([2]int{0, 0}))
	w.connectAs(ca.client(t, tenant), xdsclient.Options{})
	g.Eventually(counts(all...), "5s").Should(Equal([2]int{1, 1}), "it has all that it may see")
	g.Expect(counts("post/web/80")()).To(Equal([2]int{0, 0}), "which nobody sees")
	g.Expect(counts("gone/web/80")()).To(Equal([2]int{0, 0}))

	stream := silent(t, w.conn(ca.client(t, edge)))
	r, err := stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counts(all...)()).To(Equal([2]int{2, 1}))
	g.Expect(stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType, ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "shop/web/80: no"}})).To(Succeed())
	g.Eventually(counts("tenant/web/80"), "5s").Should(Equal([2]int{2, 2}))
	g.Expect(counts(all...)()).To(Equal([2]int{2, 1}), "one of the three it refuses")
	g.Expect(counts("tenant/web/80", "post/web/80")()).To(Equal([2]int{2, 2}), "of which one sees one, the other both")
}

func TestLongestUnacked(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	g, w := NewWithT(t), start(t, Options{Clock: now})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	longest := func() time.Duration { return w.server.longestUnacked(now.Now()) }
	w.connect(xdsclient.Options{})
	stream := silent(t, w.conn(nil))
	r, err := stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	now.SetTime(now.Now().Add(time.Minute))
	g.Eventually(longest, "5s").Should(Equal(time.Minute))
	g.Expect(stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType, ResponseNonce: r.GetNonce()})).To(Succeed())
	g.Eventually(longest, "5s").Should(BeZero())
	now.SetTime(now.Now().Add(time.Hour))
	g.Consistently(longest, "100ms").Should(BeZero(), "nobody was sent anything since")
	w.serve("shop/web/80", 6, 1001)
	w.set()
	_, err = stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	now.SetTime(now.Now().Add(time.Minute))
	g.Eventually(longest, "5s").Should(Equal(time.Minute))
	g.Expect(stream.CloseSend()).To(Succeed())
	g.Eventually(longest, "5s").Should(BeZero(), "who is gone owes nothing")
}

func TestProgressIsReportedForAProxyThatSendsNoAck(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("a/b/80", 5)
	w.set()
	progress := func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.progress }
	before := progress()
	w.connect(xdsclient.Options{Mute: true})
	g.Eventually(progress, "10s").Should(BeNumerically(">", before), "it is connected, and has accepted nothing")
	connected, acked := w.server.CountProxies([]string{"a/b/80"})
	g.Expect([]int{connected, acked}).To(Equal([]int{1, 0}))
}

// TestAProxyThatReconnectsAtOnceIsNotReportedGone: each Envoy reconnects every half an hour.
func TestAProxyThatReconnectsAtOnceIsNotReportedGone(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{MaxConnectionAge: 100 * time.Millisecond})
	w.serve("a/b/80", 5)
	w.set()
	progress := func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.progress }
	client := w.connect(xdsclient.Options{})
	g.Eventually(func() Proxies { return proxies(w.server, "a/b/80") }, "5s").Should(Equal(Proxies{Connected: 1, Acked: 1}))
	before := progress()
	g.Eventually(client.Ended(), "5s").Should(BeClosed(), "its connection is too old")
	g.Consistently(progress, "1s").Should(Equal(before), "it may come back")
	g.Eventually(progress, "5s").Should(BeNumerically(">", before), "it didn't")
}

// exchangeReports gives one replica the reports of others, encoded and decoded.
func exchangeReports(t *testing.T, to *env, from ...*env) {
	t.Helper()
	var all []Report
	for _, w := range from {
		text, err := json.Marshal(w.server.Report())
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	to.server.SetOtherReports(all, time.Now(), true)
}

func TestWhatIsConnectedToAnotherReplicaCounts(t *testing.T) {
	g := NewWithT(t)
	leader, follower := start(t, Options{}), start(t, Options{})
	for _, w := range []*env{leader, follower} {
		w.serve("shop/web/80", 5, 1001)
		w.serve("post/web/80", 5, 1001)
		w.set()
	}
	counts := func(names ...string) func() [2]int {
		return func() [2]int {
			exchangeReports(t, leader, follower)
			connected, acked := leader.server.CountProxies(names)
			return [2]int{connected, acked}
		}
	}
	g.Expect(counts("shop/web/80")()).To(Equal([2]int{0, 0}))
	follower.connect(xdsclient.Options{})
	g.Eventually(counts("shop/web/80"), "5s").Should(Equal([2]int{1, 1}))
	leader.connect(xdsclient.Options{})
	g.Eventually(counts("shop/web/80"), "5s").Should(Equal([2]int{2, 2}))
	g.Expect(leader.server.Connected("shop")).To(Equal(map[string]int{"": 2}))

	leader.serve("shop/web/80", 6, 1001)
	leader.set()
	g.Eventually(func() [2]int {
		leader.server.SetOtherReports(nil, time.Now(), true)
		connected, acked := leader.server.CountProxies([]string{"shop/web/80"})
		return [2]int{connected, acked}
	}, "5s").Should(Equal([2]int{1, 1}), "the leader's own has it")
	g.Expect(counts("shop/web/80")()).To(Equal([2]int{2, 1}), "the other replica serves what was before")
	g.Expect(counts("post/web/80")()).To(Equal([2]int{2, 2}), "of another namespace it serves the same")
	follower.serve("shop/web/80", 6, 1001)
	follower.set()
	g.Eventually(counts("shop/web/80"), "5s").Should(Equal([2]int{2, 2}))

	follower.connect(xdsclient.Options{Mute: true})
	g.Eventually(counts("shop/web/80"), "5s").Should(Equal([2]int{3, 2}))
	g.Expect(counts("gone/web/80")()).To(Equal([2]int{0, 0}))
	leader.server.SetOtherReports(nil, time.Now(), true)
	connected, acked := leader.server.CountProxies([]string{"shop/web/80"})
	g.Expect([]int{connected, acked}).To(Equal([]int{1, 1}), "the other replica is gone")
}

func TestRejectionsOfAnotherReplicaAreReported(t *testing.T) {
	g := NewWithT(t)
	leader, follower := start(t, Options{}), start(t, Options{})
	for _, w := range []*env{leader, follower} {
		for i := range 30 {
			w.serve(fmt.Sprintf("shop/web-%02d/80", i), 5, 1001)
		}
		w.serve("post/web/80", 5, 1001)
		w.set()
	}
	bad := func(name string) func(*clusterv3.Cluster) string {
		return func(c *clusterv3.Cluster) string {
			if name == "all" || c.GetName() == name {
				return name + ": no"
			}
			return ""
		}
	}
	follower.connect(xdsclient.Options{Reject: bad("shop/web-07/80")})
	proxiesOf := func(name string) func() Proxies {
		return func() Proxies { exchangeReports(t, leader, follower); return proxies(leader.server, name) }
	}
	refused := Proxies{Connected: 1, Rejections: []Rejection{{Message: "shop/web-07/80: no"}}}
	g.Eventually(proxiesOf("shop/web-07/80"), "5s").Should(Equal(refused))
	g.Expect(proxiesOf("shop/web-08/80")()).To(Equal(Proxies{Connected: 1, Acked: 1}), "which it accepted")

	all := follower.connect(xdsclient.Options{Reject: bad("all")})
	g.Eventually(func() map[string][]Rejection { return follower.server.Report().Rejections }, "5s").Should(HaveLen(maxReported))
	g.Expect(proxiesOf("shop/web-08/80")()).To(HaveField("Acked", 0), "more is refused than there is room to say")
	g.Expect(all.Err()).NotTo(HaveOccurred())
}

func TestIdentitiesOfAnotherReplicaCountForWhatTheySee(t *testing.T) {
	g := NewWithT(t)
	leader, _, _ := startTLS(t)
	follower, ca, _ := startTLS(t)
	follower.connectAs(ca.client(t, tenant), xdsclient.Options{})
	counts := func(names ...string) func() [2]int {
		return func() [2]int {
			exchangeReports(t, leader, follower)
			connected, acked := leader.server.CountProxies(names)
			return [2]int{connected, acked}
		}
	}
	g.Eventually(counts("tenant/web/80", "shop/web/80"), "5s").Should(Equal([2]int{1, 1}))
	g.Expect(counts("shop/web/80")()).To(Equal([2]int{0, 0}), "which it may not see")
	g.Expect(leader.server.Connected("tenant")).To(Equal(map[string]int{tenant: 1}))
	g.Expect(leader.server.Connected("shop")).To(BeEmpty())
	g.Expect(follower.server.Report().Content).To(HaveLen(1), "nobody is there who sees the other")
}

func TestTheDigestFollowsWhatIsServed(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{MaxRemovalPercent: 100})
	digests := func() map[string]uint64 {
		w.set()
		all := map[string]uint64{}
		for namespace, digest := range w.server.store.digests {
			all[namespace] = digest
		}
		return all
	}
	w.serve("shop/web/80", 5, 1001)
	first := digests()
	w.serve("shop/mail/25", 5, 1001)
	g.Expect(digests()).NotTo(Equal(first))
	w.serve("shop/web/80", 5, 1002)
	w.serve("shop/web/80", 6, 1002)
	w.serve("shop/mail/25", 7, 1001)
	g.Expect(digests()).NotTo(Equal(first))
	w.serve("shop/web/80", 5, 1003)
	delete(w.snapshot.Clusters, "shop/mail/25")
	w.set("shop/mail/25")
	g.Expect(digests()).To(Equal(first), "endpoints are none of it")
	delete(w.snapshot.Clusters, "shop/web/80")
	w.set("shop/web/80")
	g.Expect(digests()).To(BeEmpty())
}
