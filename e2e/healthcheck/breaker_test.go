package healthcheck

import (
	"context"
	"fmt"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// workersOf gives a namespace's Workers as they are.
func workersOf(ctx context.Context, namespace string) []unstructured.Unstructured {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(worker)
	Expect(seedClient.List(ctx, &all, client.InNamespace(namespace))).To(Succeed())
	return all.Items
}

// reasons counts the Workers by the reason of their one condition, to Eventually.
func reasons(ctx context.Context, namespace string) func() map[string]int {
	return func() map[string]int {
		by := map[string]int{}
		for _, w := range workersOf(ctx, namespace) {
			if list, _, _ := unstructured.NestedSlice(w.Object, "status", "conditions"); len(list) == 1 {
				by[list[0].(map[string]any)["reason"].(string)]++
			}
		}
		return by
	}
}

var _ = Describe("many targets", func() {
	It("that turn False together aren't believed until one of them has the reset, also by a new program", func(ctx SpecContext) {
		namespace := place(ctx)
		for i := range 6 {
			put(ctx, seedClient, namespace, "apiVersion: extensions.gardener.cloud/v1alpha1\nkind: Worker\nmetadata: {name: w%d}\nspec: {type: %s}", i, namespace)
		}
		check := newDial("True")
		begin := func() *program {
			return run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(time.Hour)).Check("EveryNodeReady", "dial", check.new))
		}
		turn := func(to string) {
			check.status.Store(to)
			for _, w := range workersOf(ctx, namespace) {
				touch(ctx, &w)
			}
		}
		p := begin()
		Eventually(reasons(ctx, namespace)).Should(Equal(map[string]int{"HealthCheckSuccessful": 6}))
		turn("False")
		doubted := map[string]int{"HealthCheckUnsuccessful": 2, "HealthCheckInDoubt": 4}
		Eventually(reasons(ctx, namespace)).Should(Equal(doubted))
		p.stop()
		begin()
		turn("False")
		Consistently(reasons(ctx, namespace), 2*time.Second).Should(Equal(doubted))

		By("annotating one as its message says")
		for _, w := range workersOf(ctx, namespace) {
			list, _, _ := unstructured.NestedSlice(w.Object, "status", "conditions")
			said := regexp.MustCompile(`annotate this object with (\S+)=(\S+)$`).FindStringSubmatch(list[0].(map[string]any)["message"].(string))
			if said == nil {
				continue
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, said[1], said[2])
			Expect(seedClient.Patch(ctx, &w, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
			break
		}
		Eventually(reasons(ctx, namespace)).Should(Equal(map[string]int{"HealthCheckUnsuccessful": 3, "HealthCheckInDoubt": 3}))
		turn("False")
		Eventually(reasons(ctx, namespace)).Should(Equal(map[string]int{"HealthCheckUnsuccessful": 6}))
		turn("True")
		Eventually(reasons(ctx, namespace)).Should(Equal(map[string]int{"HealthCheckSuccessful": 6}))
	}, NodeTimeout(2*time.Minute))
})
