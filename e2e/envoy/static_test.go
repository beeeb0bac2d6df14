package envoy

import (
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/internal/xds"
)

// TestAStaticClusterOfTheSameNameStays: what docs/concepts/outlier-policies.md says of it, as the server can't know it.
func TestAStaticClusterOfTheSameNameStays(t *testing.T) {
	g, server := NewWithT(t), serve(t, xds.Options{})
	served, static := NewBackend(t), NewBackend(t)
	static.Answer(418)
	server.cluster(web, func(*clusterv3.Cluster) {}, served)
	server.publish()
	e := Start(t, Options{
		Bootstrap: []string{"--server", server.options.Address, "--plaintext"},
		Listeners: []Listener{{Name: "web", Cluster: web}, {Name: "nowhere", Cluster: "shop/wbe/80"}},
		Change: func(b *bootstrapv3.Bootstrap) {
			b.StaticResources.Clusters = append(b.StaticResources.Clusters, &clusterv3.Cluster{Name: web, LoadAssignment: endpointsOf("static", []*Backend{static})})
		},
	})
	server.acked(web, 1)
	g.Expect(e.Statuses("web", 3)).To(Equal(map[int]int{418: 3}))
	text, err := e.adminText("/clusters")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(ContainSubstring("shop/web/80::added_via_api::false"))
	g.Expect(e.Statuses("nowhere", 1)).To(Equal(map[int]int{503: 1}))
}
