package envoy

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// TestHostsThatAreEjectedOneAfterTheOtherGetNothingAnyMore: Envoy's workers would learn of the second up to a second late.
func TestHostsThatAreEjectedOneAfterTheOtherGetNothingAnyMore(t *testing.T) {
	g := NewWithT(t)
	key, _ := outlier.ParseKey(web)
	product := outlier.NewCluster(&outlier.Assignment{Key: key, Policy: &outlier.Policy{}})
	_, e, hosts := scene(t, false, 6, func(c *clusterv3.Cluster) { c.CommonLbConfig = product.GetCommonLbConfig() })
	late := int64(0)
	for i, b := range hosts[:4] {
		b.Answer(500)
		want := addresses(hosts[:i+1]...)
		slices.Sort(want)
		g.Eventually(func() []string { e.Statuses("web", 6); return slices.Sorted(slices.Values(e.Ejected(web))) }, "20s", "1ms").Should(Equal(want))
		before := b.Hits()
		e.Statuses("web", 30)
		late += b.Hits() - before
	}
	g.Expect(late).To(BeNumerically("<=", 4), "of 120 requests after the ejections so many reached who was ejected; one each may be on its way")
}
