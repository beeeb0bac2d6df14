package xds

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestAClientGetsClustersAndTheirEndpoints(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001, 1002)
	w.serve("shop/db/5432", 5, 2001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").Should(Equal([]string{"127.0.0.1:1001", "127.0.0.1:1002"}))
	g.Eventually(func() []string { return client.Hosts("shop/db/5432") }, "5s").Should(Equal([]string{"127.0.0.1:2001"}))
	g.Expect(client.Clusters()["shop/web/80"].GetOutlierDetection().GetConsecutive_5Xx().GetValue()).To(Equal(uint32(5)))
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "5s").Should(Equal(Proxies{Connected: 1, Acked: 1}))
}

func TestNoStreamIsServedBeforeTheFirstSnapshot(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	early := w.connect(xdsclient.Options{Clusters: map[string]string{"shop/web/80": "v"}})
	g.Eventually(early.Ended(), "5s").Should(BeClosed())
	g.Expect(status.Code(early.Err())).To(Equal(codes.Unavailable))
	g.Expect(early.Wire().ClusterResponses).To(BeZero())

	w.serve("shop/web/80", 5, 1001)
	w.set()
	late := w.connect(xdsclient.Options{})
	g.Eventually(late.Clusters, "5s").Should(HaveKey("shop/web/80"))
}

func TestASnapshotThatSaysTheSameIsNotSent(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/db/5432", 5, 2001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").ShouldNot(BeEmpty())
	client.ResetWire()
	for name, c := range w.snapshot.Clusters { // equal messages, not the same
		w.snapshot.Clusters[name] = Cluster{proto.CloneOf(c.Message), proto.CloneOf(c.Endpoints), c.Namespace}
	}
	w.set()
	w.serve("shop/web/80", 6, 1001) // whatever came before this has arrived when this has
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/web/80"] }, "5s").Should(Equal(1))
	wire := client.Wire()
	g.Expect(wire.ClusterResponses).To(Equal(1))
	g.Expect(wire.Clusters).To(Equal(map[string]int{"shop/web/80": 1}))
	g.Expect(wire.Removed).To(BeEmpty())
}

func TestAChangeTouchesOneResource(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	for _, name := range []string{"shop/a/80", "shop/b/80", "shop/c/80"} {
		w.serve(name, 5, 1001)
	}
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(func() []string { return client.Hosts("shop/c/80") }, "5s").ShouldNot(BeEmpty())
	g.Eventually(func() int { return proxies(w.server, "shop/c/80").Acked }, "5s").Should(Equal(1))

	client.ResetWire()
	w.serve("shop/b/80", 5, 1001, 1002) // endpoints only
	w.set()
	g.Eventually(func() []string { return client.Hosts("shop/b/80") }, "5s").Should(HaveLen(2))
	wire := client.Wire()
	g.Expect(wire.ClusterResponses).To(BeZero())
	g.Expect(wire.EndpointResponses).To(Equal(1))
	g.Expect(wire.Endpoints).To(HaveLen(1))

	client.ResetWire()
	w.serve("shop/b/80", 7, 1001, 1002) // the cluster, and so its endpoints under a new name
	w.set()
	g.Eventually(func() int { return len(client.Wire().Endpoints) }, "5s").Should(Equal(1))
	g.Eventually(func() []string { return client.Hosts("shop/b/80") }, "5s").Should(HaveLen(2))
	wire = client.Wire()
	g.Expect(wire.Clusters).To(Equal(map[string]int{"shop/b/80": 1}))
	g.Expect(wire.Removed).To(BeEmpty())
}

func TestAnEnvoyThatReconnectsGetsOnlyWhatDiffers(t *testing.T) {
	g, first := NewWithT(t), start(t, Options{})
	first.serve("shop/web/80", 5, 1001)
	first.serve("shop/db/5432", 5, 2001)
	first.set()
	client := first.connect(xdsclient.Options{})
	g.Eventually(client.Versions, "5s").Should(HaveLen(2))

	second := start(t, Options{}) // another replica, or the same after a restart
	second.snapshot = first.snapshot
	second.serve("shop/db/5432", 6, 2001)
	second.set()
	again := second.connect(xdsclient.Options{Clusters: client.Versions()})
	g.Eventually(func() int { return again.Wire().ClusterResponses }, "5s").Should(Equal(1))
	g.Expect(again.Wire().Clusters).To(Equal(map[string]int{"shop/db/5432": 1}))
	g.Expect(again.Wire().Removed).To(BeEmpty())
}

func TestAnEnvoyThatReconnectsWithEverythingCounts(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 8080)
	w.set()
	versions := w.connect(xdsclient.Options{}).Versions
	g.Eventually(versions, "10s").Should(HaveLen(1))
	progress := func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.progress }
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "10s").Should(Equal(Proxies{Connected: 1, Acked: 1}))
	before := progress()
	w.connect(xdsclient.Options{Clusters: versions()})
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "10s").Should(Equal(Proxies{Connected: 2, Acked: 2}))
	g.Eventually(progress, "10s").Should(BeNumerically(">", before), "whoever writes statuses learns of it, though nothing was sent")
}

func TestEndpointsAreServedUnderNamesOfOtherReplicas(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(1))
	// An Envoy that rejected a newer cluster goes on with an old one.
	g.Expect(client.Ask(&discovery.DeltaDiscoveryRequest{
		TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", ResourceNamesSubscribe: []string{"shop/web/80#0123456789abcdef"},
	})).To(Succeed())
	g.Eventually(func() int { return client.Wire().Endpoints["shop/web/80#0123456789abcdef"] }, "5s").Should(Equal(1))
	w.serve("shop/web/80", 5, 1001, 1002)
	w.set()
	g.Eventually(func() int { return client.Wire().Endpoints["shop/web/80#0123456789abcdef"] }, "5s").Should(Equal(2))
	w.serve("shop/web/80", 6, 1001, 1002)
	w.set()
	w.serve("shop/web/80", 6, 1003)
	w.set()
	g.Eventually(func() int { return client.Wire().Endpoints["shop/web/80#0123456789abcdef"] }, "5s").Should(Equal(3))
}

func TestNamesOfEndpointsThatNobodyAsksForAreForgotten(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").ShouldNot(BeEmpty())
	for threshold := uint32(6); threshold < 12; threshold++ {
		w.serve("shop/web/80", threshold, 1001)
		w.set()
		g.Eventually(func() uint32 {
			return client.Clusters()["shop/web/80"].GetOutlierDetection().GetConsecutive_5Xx().GetValue()
		}, "5s").Should(Equal(threshold))
		g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").ShouldNot(BeEmpty())
	}
	g.Eventually(func() (names int) {
		w.server.endpoints.mu.Lock()
		defer w.server.endpoints.mu.Unlock()
		for watch := range w.server.endpoints.watches {
			names += len(watch.otherNames)
		}
		return names
	}, "5s").Should(BeZero())
	g.Expect(client.Wire().Removed).To(BeEmpty(), "nobody is told of names that go")
}

func TestTypesThatAreNotServedAreAnsweredWithNothing(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Expect(client.Ask(&discovery.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/envoy.config.listener.v3.Listener"})).To(Succeed())
	g.Eventually(func() int { return client.Wire().ClusterResponses }, "5s").Should(Equal(2), "the clusters, and an empty answer")
	g.Expect(client.Wire().Clusters).To(HaveLen(1))
	w.serve("shop/web/80", 6, 1001)
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/web/80"] }, "5s").Should(Equal(2), "the stream goes on")
}

func TestTheNodeOfAClientIsNotRead(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{Node: &corev3.Node{Id: "somebody-else"}, Reject: func(*clusterv3.Cluster) string { return "no" }})
	g.Eventually(func() []Rejection { return proxies(w.server, "shop/web/80").Rejections }, "5s").Should(Equal([]Rejection{{Proxy: "", Message: "no"}}))
	g.Expect(client.Err()).NotTo(HaveOccurred())
}

// An Envoy that rejected a newer cluster goes on with the old one. While it is slow to answer, the server doesn't know what it subscribes to.
func TestAnEnvoyThatIsSlowToAnswerKeepsTheEndpointsOfItsCluster(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	name := w.server.store.published["shop/web/80"].endpointsEntry.name
	stream := silent(t, w.conn(nil))
	send := func(r *discovery.DeltaDiscoveryRequest) {
		r.TypeUrl = resource.EndpointType
		g.Expect(stream.Send(r)).To(Succeed())
	}
	received := func() *discovery.DeltaDiscoveryResponse {
		for {
			r, err := stream.Recv()
			g.Expect(err).NotTo(HaveOccurred())
			if r.GetTypeUrl() == resource.EndpointType {
				return r
			}
		}
	}
	send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{name}})
	r := received()
	for threshold := range uint32(2 * maxNames) {
		w.serve("shop/web/80", 6+threshold, 1001)
		w.set()
	}
	send(&discovery.DeltaDiscoveryRequest{ResponseNonce: r.GetNonce()})
	w.serve("shop/web/80", 5+2*maxNames, 1001, 1002)
	w.set()
	g.Expect(received().GetResources()).To(ConsistOf(HaveField("Name", name)))
	w.server.endpoints.mu.Lock()
	for watch := range w.server.endpoints.watches {
		g.Expect(watch.otherNames).To(Equal(map[string][]string{"shop/web/80": {name}}), "the names that it never asked for are forgotten")
	}
	w.server.endpoints.mu.Unlock()
}
