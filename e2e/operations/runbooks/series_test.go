package runbooks

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

// own are the series that are Autohealer's own, without their values, and without those of reviews and probes: they are as many as
// there are kinds, operations, verdicts and rules, or sides and outcomes, and come when the first such one does. A manager that has
// just started has told of the one policy then.
func own(ctx context.Context) sets.Set[string] {
	GinkgoHelper()
	var text string
	Eventually(func(ctx context.Context) (_ string, err error) {
		text, err = scrape(ctx)
		return text, err
	}).WithContext(ctx).Should(ContainSubstring("\n" + `autohealer_conditionset_nodes{policy="kernel-deadlock",state="selected"} `))
	found := sets.New[string]()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "autohealer_") && !strings.HasPrefix(line, "autohealer_admission_") && !strings.HasPrefix(line, "autohealer_probe_") {
			found.Insert(line[:strings.LastIndex(line, " ")])
		}
	}
	return found
}

// many is how many policies come to the one that there is.
const many = 10

// expectSelected waits until the metrics of each of them tell that it selects so many nodes: each is looked at in its turn.
func expectSelected(ctx context.Context, nodes int) {
	GinkgoHelper()
	for i := range many {
		Eventually(scrape).WithContext(ctx).Should(ContainSubstring(fmt.Sprintf(`autohealer_conditionset_nodes{policy="many-%d",state="selected"} %d`, i, nodes)))
	}
}

var _ = Describe("the manager's metrics", func() {
	// Measured: 92 with one policy that acted, and 22 for each further one, of which 15 count what it changes: they begin at 0.
	It("grow with policies, by no more than 22 each, and with nothing else", func(ctx SpecContext) {
		before := own(ctx)
		Expect(len(before)).To(BeNumerically("<", 100), "with one policy")
		for i := range many {
			set := fixture.NewSet(fmt.Sprintf("many-%d", i), fmt.Sprintf("example.com/many-%d", i), "NoSchedule", "KernelDeadlock")
			set.Spec.Type = fmt.Sprintf("Many%d", i)
			set.Spec.Mode = "Observe"
			Expect(h.Client.Create(ctx, set)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(h.Client.Delete(ctx, set)).To(Succeed()) })
		}
		expectSelected(ctx, 12)
		with := own(ctx)
		AddReportEntry("series with 1 and with 11 policies", fmt.Sprint(len(before), " ", len(with)))
		Expect(len(with)).To(BeNumerically("<=", len(before)+22*many))

		further, err := h.AddNodes(ctx, 50, cluster.NodeOptions{Prefix: "further"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, append([]string{"delete", "node"}, further...)...)
			Expect(err).NotTo(HaveOccurred())
			Eventually(scrape).WithContext(ctx).Should(ContainSubstring(`autohealer_conditionset_nodes{policy="kernel-deadlock",state="selected"} 12`))
		})
		expectSelected(ctx, 62)
		Expect(own(ctx).Difference(with)).To(BeEmpty(), "50 nodes more")
	})
})
