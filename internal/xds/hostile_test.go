package xds

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	. "github.com/onsi/gomega"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestAStreamThatAsksForEndlessTypesIsEndedAndOthersGoOn(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	honest := w.connect(xdsclient.Options{})
	g.Eventually(honest.Clusters, "5s").Should(HaveLen(1))
	ads := discovery.NewAggregatedDiscoveryServiceClient(w.conn(nil))

	t.Run("state of the world", func(t *testing.T) {
		g := NewWithT(t)
		stream, err := ads.StreamAggregatedResources(t.Context(), grpc.WaitForReady(true))
		g.Expect(err).NotTo(HaveOccurred())
		for i := range 1000 { // faster than it reads answers
			if err := stream.Send(&discovery.DiscoveryRequest{TypeUrl: fmt.Sprintf("type.googleapis.com/made.up.%d", i)}); err != nil {
				g.Expect(err).To(MatchError(io.EOF))
				break
			}
		}
		g.Expect(ending(t, func() error { _, err := stream.Recv(); return err })).To(MatchError(ContainSubstring("a stream may ask for 10 types")))
	})
	t.Run("delta", func(t *testing.T) {
		g := NewWithT(t)
		stream, err := ads.DeltaAggregatedResources(t.Context(), grpc.WaitForReady(true))
		g.Expect(err).NotTo(HaveOccurred())
		for i := range 1000 {
			if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: fmt.Sprintf("type.googleapis.com/made.up.%d", i)}); err != nil {
				g.Expect(err).To(MatchError(io.EOF))
				break
			}
		}
		g.Expect(ending(t, func() error { _, err := stream.Recv(); return err })).To(MatchError(ContainSubstring("a stream may ask for 10 types")))
	})
	g.Eventually(func() int {
		w.server.unserved.mu.Lock()
		defer w.server.unserved.mu.Unlock()
		return len(w.server.unserved.watches)
	}, "5s").Should(BeZero())
	w.serve("shop/web/80", 6, 1001)
	w.set()
	g.Eventually(func() int { return honest.Wire().Clusters["shop/web/80"] }, "5s").Should(Equal(2))
}

// ending is why a stream ends.
func ending(t *testing.T, receive func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := receive(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("its status is %s", status.Code(err))
		}
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the stream doesn't end")
		return nil
	}
}

func TestARejectionIsBoundedText(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(w.conn(nil)).DeltaAggregatedResources(t.Context(), grpc.WaitForReady(true))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType})).To(Succeed())
	r, err := stream.Recv()
	g.Expect(err).NotTo(HaveOccurred())
	raw := "shop/web/80:\x1b[2J\r\nE0101 forged line\x00\u202e" + strings.Repeat("ä", 1<<20)
	g.Expect(stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.ClusterType, ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: raw},
	})).To(Succeed())
	g.Eventually(func() []Rejection { return proxies(w.server, "shop/web/80").Rejections }, "5s").Should(HaveLen(1))
	message := proxies(w.server, "shop/web/80").Rejections[0].Message
	g.Expect(message).To(HavePrefix("shop/web/80: [2J  E0101 forged line  ää"))
	g.Expect(len(message)).To(BeNumerically("<=", 1024))
	g.Expect(utf8.ValidString(message)).To(BeTrue())
	g.Expect(message).To(HaveSuffix("ä…"))
}

func TestATruncatedRejectionConcernsAll(t *testing.T) {
	sent := map[string]struct{}{"shop/a/80": {}, "shop/b/80": {}}
	for name, said := range map[string]string{
		"Envoy's":      "Error adding/updating cluster(s) shop/a/80: bad, sh...(truncated)",
		"a longer one": "shop/a/80 " + strings.Repeat("x", 9000),
	} {
		if got := blamedNames(sent, sanitize(said)); len(got) != 2 {
			t.Errorf("%s concerns %v", name, got)
		}
	}
}

func TestAnEnvoyWithVeryManyClustersReconnects(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	known := map[string]string{}
	for i := range 50000 {
		known[fmt.Sprintf("a-namespace-with-a-long-name/a-service-with-a-longer-name-%d/8080@httproute/checkout", i)] = strings.Repeat("0", 32)
	}
	client := w.connect(xdsclient.Options{Clusters: known}) // 7 MB
	g.Eventually(client.Clusters, "10s").Should(HaveKey("shop/web/80"))
	g.Expect(client.Err()).NotTo(HaveOccurred())
}

func TestNamesOfAClientDecideNothing(t *testing.T) {
	g := NewWithT(t)
	w, ca, _ := startTLS(t)
	all := w.connectAs(ca.client(t, edge), xdsclient.Options{})
	g.Eventually(all.Clusters, "5s").Should(HaveLen(2))
	claims := map[string]string{"shop/web/80": "v", "shop/web/81": "v", "tenant/web/80@httproute/made-up": "v"}
	for i := range 1000 {
		claims[fmt.Sprintf("shop/made-up-%d/80", i)] = "v"
	}
	own := w.connectAs(ca.client(t, tenant), xdsclient.Options{Clusters: claims})
	g.Eventually(func() []string { return own.Hosts("tenant/web/80") }, "5s").ShouldNot(BeEmpty())

	delete(w.snapshot.Clusters, "tenant/web/80")
	w.set("tenant/web/80") // one of two may be removed at once, whatever other names clients send
	g.Eventually(all.Clusters, "5s").Should(HaveLen(1))
	g.Expect(w.server.DelayedRemovals()).To(BeZero())
	g.Expect(names(w.server.clusters)).To(Equal([]string{"shop/web/80"}))
	g.Eventually(func() map[string]int { return own.Wire().Removed }, "5s").Should(Equal(map[string]int{"tenant/web/80": 1}), "and nobody learns what others have")
}

func TestNamesOfAClientKeepNoEndpointsFromOthers(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.set()
	junk := make([]string, 100)
	for i := range junk {
		junk[i] = fmt.Sprintf("shop/web/80#made-up-%d", i)
	}
	greedy := w.connect(xdsclient.Options{})
	g.Expect(greedy.Ask(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: junk})).To(Succeed())
	g.Eventually(func() int { return len(greedy.Wire().Endpoints) }, "5s").Should(BeNumerically(">=", 4))
	honest := w.connect(xdsclient.Options{}) // it has the cluster from another replica
	g.Expect(honest.Ask(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"shop/web/80#0123456789abcdef"}})).To(Succeed())
	g.Eventually(func() map[string]int { return honest.Wire().Endpoints }, "5s").Should(HaveKeyWithValue("shop/web/80#0123456789abcdef", 1))
	g.Expect(len(names(w.server.endpoints))).To(BeNumerically("<=", 6))
	for i := range 20 { // names that aren't asked for any more don't count
		name := fmt.Sprintf("shop/web/80#version-%d", i)
		g.Expect(honest.Ask(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{name}})).To(Succeed())
		g.Eventually(func() map[string]int { return honest.Wire().Endpoints }, "5s").Should(HaveKeyWithValue(name, 1))
		g.Expect(honest.Ask(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesUnsubscribe: []string{name}})).To(Succeed())
	}
}
