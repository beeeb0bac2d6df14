package xds

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	client "github.com/envoyproxy/go-control-plane/pkg/client/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

// fetch gives the next response of go-control-plane's own client, by the names of clusters.
func fetch(t *testing.T, ads client.ADSClient) map[string]*clusterv3.Cluster {
	t.Helper()
	response, err := ads.Fetch()
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]*clusterv3.Cluster{}
	for _, sent := range response.Resources {
		cluster := &clusterv3.Cluster{}
		if err := sent.UnmarshalTo(cluster); err != nil {
			t.Fatal(err)
		}
		clusters[cluster.GetName()] = cluster
	}
	return clusters
}

func TestStateOfTheWorldHasAllClustersEachTime(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/db/5432", 5, 2001)
	w.set()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ads := client.NewADSClient(ctx, &corev3.Node{Id: "x"}, resource.ClusterType)
	g.Expect(ads.InitConnect(w.conn(nil))).To(Succeed())
	g.Expect(fetch(t, ads)).To(HaveLen(2))
	g.Expect(ads.Ack()).To(Succeed())
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "5s").Should(Equal(Proxies{Connected: 1, Acked: 1}))

	w.set()                                     // the same
	delete(w.snapshot.Clusters, "shop/db/5432") // missing, not gone
	w.serve("shop/web/80", 6, 1001)
	w.set()
	next := fetch(t, ads)
	g.Expect(next).To(HaveLen(2))
	g.Expect(next["shop/web/80"].GetOutlierDetection().GetConsecutive_5Xx().GetValue()).To(Equal(uint32(6)))
	g.Expect(ads.Nack("shop/web/80: six is bad")).To(Succeed())
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "5s").Should(Equal(Proxies{
		Connected: 1, Rejections: []Rejection{{Message: "shop/web/80: six is bad"}},
	}))
	g.Expect(proxies(w.server, "shop/db/5432").Acked).To(Equal(1))

	w.set("shop/db/5432")
	g.Expect(fetch(t, ads)).To(HaveLen(1))
}

func TestStateOfTheWorldHasChangedEndpointsOnly(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/db/5432", 5, 2001)
	w.set()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn(nil)).StreamAggregatedResources(t.Context(), grpc.WaitForReady(true))
	g.Expect(err).NotTo(HaveOccurred())
	names := []string{w.server.store.published["shop/web/80"].endpointsEntry.name, w.server.store.published["shop/db/5432"].endpointsEntry.name}
	g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: names})).To(Succeed())
	r, err := stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.GetResources()).To(HaveLen(2))
	g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNames: names, ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo()})).To(Succeed())
	w.serve("shop/db/5432", 5, 2001, 2002)
	w.set()
	r, err = stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.GetResources()).To(HaveLen(1))
}

func TestStateOfTheWorldAnswersOtherTypesWithNothing(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn(nil)).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.ListenerType})).To(Succeed())
	r, err := stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.GetResources()).To(BeEmpty())
	g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.ClusterType})).To(Succeed())
	r, err = stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(r.GetResources()).To(HaveLen(1))
}

// A manager that has just started knows of clusters by the record alone, while their Services are missing: to send the others would
// have such a client remove them.
func TestStateOfTheWorldGetsNothingWhileAClusterIsMissing(t *testing.T) {
	for name, settled := range map[string]func(*env){
		"until it is found":     func(w *env) { w.serve("shop/db/5432", 5, 2001); w.set() },
		"until it is gone":      func(w *env) { w.server.Set(t.Context(), w.withMissing("shop/db/5432", "shop/db/5432")) },
		"until nobody wants it": func(w *env) { w.set() },
	} {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), start(t, Options{})
			w.serve("shop/web/80", 5, 1001)
			w.server.Set(t.Context(), w.withMissing("shop/db/5432"))
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn(nil)).StreamAggregatedResources(t.Context(), grpc.WaitForReady(true))
			g.Expect(err).NotTo(HaveOccurred())
			next := func(typeURL string) *discovery.DiscoveryResponse {
				t.Helper()
				r, err := stream.Recv()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(r.GetTypeUrl()).To(Equal(typeURL))
				return r
			}
			g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.ClusterType})).To(Succeed())
			g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.ListenerType})).To(Succeed())
			next(resource.ListenerType) // and none before it
			w.serve("shop/web/80", 6, 1001)
			w.server.Set(t.Context(), w.withMissing("shop/db/5432"))
			g.Expect(stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.RouteType})).To(Succeed())
			next(resource.RouteType)
			delta := w.connect(xdsclient.Options{Clusters: map[string]string{"shop/db/5432": "v"}})
			g.Eventually(delta.Clusters, "5s").Should(HaveKey("shop/web/80"), "who says what it has is told what is new")
			g.Expect(delta.Wire().Removed).To(BeEmpty())

			settled(w)
			w.set()
			g.Expect(next(resource.ClusterType).GetResources()).To(HaveLen(len(w.server.store.published)))
		})
	}
}
