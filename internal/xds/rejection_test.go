package xds

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

func TestARejectedClusterIsReportedWithTheClientsMessage(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/web/8080", 5, 1001)
	w.set()
	client := w.connect(xdsclient.Options{Reject: func(c *clusterv3.Cluster) string {
		if c.GetName() == "shop/web/80" && c.GetOutlierDetection().GetConsecutive_5Xx().GetValue() == 66 {
			return "Error adding/updating cluster(s) shop/web/80: sixty-six is too many"
		}
		return ""
	}})
	g.Eventually(func() int { return proxies(w.server, "shop/web/80").Acked }, "5s").Should(Equal(1))

	w.serve("shop/web/80", 66, 1001)
	w.serve("shop/web/8080", 66, 1001)
	w.set()
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "5s").Should(Equal(Proxies{
		Connected: 1, Rejections: []Rejection{{Message: "Error adding/updating cluster(s) shop/web/80: sixty-six is too many"}},
	}))
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/8080") }, "5s").Should(Equal(Proxies{Connected: 1, Acked: 1}))
	g.Expect(client.Clusters()["shop/web/8080"].GetOutlierDetection().GetConsecutive_5Xx().GetValue()).To(Equal(uint32(66)))
	g.Expect(client.Wire().Clusters["shop/web/80"]).To(Equal(2), "what was rejected is not sent again")

	w.serve("shop/web/80", 66, 1001, 1002)
	w.set()
	g.Eventually(func() []string { return client.Hosts("shop/web/80") }, "5s").Should(HaveLen(2), "the cluster that it keeps has its endpoints under another name")

	w.serve("shop/web/80", 7, 1001)
	w.set()
	g.Eventually(func() Proxies { return proxies(w.server, "shop/web/80") }, "5s").Should(Equal(Proxies{Connected: 1, Acked: 1}))
}

func TestRejectedEndpointsAreReportedForTheirCluster(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/web/8080", 5, 1001)
	w.set()
	const message = "malformed IP address"
	client := w.connect(xdsclient.Options{RejectEndpoints: func(e *endpointv3.ClusterLoadAssignment) string {
		if clusterOf(e.GetClusterName()) == "shop/web/80" && len(e.GetEndpoints()[0].GetLbEndpoints()) > 1 {
			return message + " in " + e.GetClusterName()
		}
		return ""
	}})
	g.Eventually(func() []string { return client.Hosts("shop/web/8080") }, "5s").Should(HaveLen(1))
	g.Expect(w.server.Rejections()).To(BeEmpty())

	w.serve("shop/web/80", 5, 1001, 1002)
	w.serve("shop/web/8080", 5, 1001, 1002)
	w.set()
	g.Eventually(w.server.Rejections, "5s").Should(HaveLen(1))
	g.Expect(w.server.Rejections()).To(HaveKeyWithValue("shop/web/80", ConsistOf(HaveField("Message", HavePrefix(message)))))
	g.Expect(client.Hosts("shop/web/80")).To(HaveLen(1))
	g.Eventually(func() []string { return client.Hosts("shop/web/8080") }, "5s").Should(HaveLen(2))

	w.serve("shop/web/80", 5, 1003)
	w.set()
	g.Eventually(w.server.Rejections, "5s").Should(BeEmpty())

	w.serve("shop/web/80", 5, 1001, 1002)
	w.set()
	g.Eventually(w.server.Rejections, "5s").Should(HaveLen(1))
	g.Expect(client.Ask(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.EndpointType, ResourceNamesUnsubscribe: []string{w.server.store.published["shop/web/80"].endpointsEntry.name},
	})).To(Succeed())
	g.Eventually(w.server.Rejections, "5s").Should(BeEmpty(), "it hasn't the cluster any more")
}

func TestAnInvalidClusterLeavesTheLastGoodOne(t *testing.T) {
	g, w := NewWithT(t), start(t, Options{})
	w.serve("shop/web/80", 5, 1001)
	w.serve("shop/db/5432", 5, 2001)
	w.set()
	client := w.connect(xdsclient.Options{})
	g.Eventually(client.Clusters, "5s").Should(HaveLen(2))

	w.serve("shop/web/80", 6, 1001)
	w.snapshot.Clusters["shop/web/80"].Message.OutlierDetection.MaxEjectionPercent = wrapperspb.UInt32(101)
	w.serve("shop/db/5432", 6, 2001)
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/db/5432"] }, "5s").Should(Equal(2))
	g.Expect(client.Wire().Clusters["shop/web/80"]).To(Equal(1))
	g.Eventually(func() int { return proxies(w.server, "shop/db/5432").Acked }, "5s").Should(Equal(1))
	rejections := proxies(w.server, "shop/web/80").Rejections
	g.Expect(rejections).To(HaveLen(1))
	g.Expect(rejections[0].Proxy).To(BeEmpty())
	g.Expect(rejections[0].Message).To(ContainSubstring("MaxEjectionPercent: value must be less than or equal to 100"))

	w.serve("shop/web/80", 6, 1001)
	w.set()
	g.Eventually(func() int { return client.Wire().Clusters["shop/web/80"] }, "5s").Should(Equal(2))
	g.Expect(proxies(w.server, "shop/web/80").Rejections).To(BeEmpty())
}

func TestARejectionThatNamesNobodyConcernsAll(t *testing.T) {
	sent := map[string]struct{}{"shop/a/80": {}, "shop/b/80": {}}
	if got := blamedNames(sent, "the whole response is bad"); len(got) != 2 {
		t.Errorf("it concerns %v", got)
	}
}

func TestNamesAreFoundInRejections(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"Error adding/updating cluster(s) shop/web/80: bad", true},
		{"shop/web/80", true},
		{"shop/web/8080: bad", false},
		{"my-shop/web/80: bad", false},
		{"shop/web/80@httproute/r: bad", false},
		{"shop/web/8080: bad, shop/web/80: bad", true},
	} {
		if got := mentionsName(c.text, "shop/web/80"); got != c.want {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}
