package weederconfig

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("A window", Serial, func() {
	It("costs no goroutine, no watch and no request", func(ctx SpecContext) {
		const services = 50
		s := newShop(ctx)
		s.deploy(ctx, "etcd", 1, nil)
		pod := s.pods(ctx, "etcd")[0]
		wc := s.weeder("many", "service-0", "api")
		wc.Spec.WatchDuration = "5m"
		for i := range services {
			name := fmt.Sprintf("service-%d", i)
			wc.Spec.ServicesAndDependantSelectors[name] = wc.Spec.ServicesAndDependantSelectors["service-0"]
			Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})).To(Succeed())
			s.write(ctx, name, name, false, pod)
		}
		create(ctx, wc)
		Expect(activeWindows(ctx, wc)()).To(BeZero())
		time.Sleep(moment) // what the start of this spec caused is over
		asked, running := proxy.snapshot(), goroutines(ctx)

		for i := range services {
			name := fmt.Sprintf("service-%d", i)
			s.write(ctx, name, name, true, pod)
		}
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(services))
		more := proxy.since(asked)
		Expect(sets.KeySet(more).Difference(sets.New("PATCH weederconfigs/status"))).To(BeEmpty())
		Expect(more["PATCH weederconfigs/status"]).To(BeNumerically("<=", 10), "one a second at most, for all windows together")
		// A few come and go with connections and Events; one a window would be 50.
		Expect(goroutines(ctx) - running).To(BeNumerically("<", services/5))

		By("idle, with all of them open, it asks for nothing")
		time.Sleep(moment)
		asked = proxy.snapshot()
		Consistently(func() map[string]int { return proxy.since(asked) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

var _ = Describe("Live rules", func() {
	DescribeTable("refuse what the cluster shows to be dangerous", func(ctx SpecContext, prepare func(context.Context, shop) *v1alpha1.WeederConfig, rule string) {
		s := newShop(ctx)
		wc := prepare(ctx, s)
		Eventually(func() error { return h.Client.Create(ctx, wc.DeepCopy(), dryRun) }).Should(MatchError(ContainSubstring(rule)))
	},
		Entry("a Service's own pods", func(ctx context.Context, s shop) *v1alpha1.WeederConfig {
			s.upstream(ctx, "etcd")
			return s.weeder("own", "etcd", "etcd")
		}, "weederconfig/selects-own-pods: 1 pods are selected as dependents of a Service that they are themselves behind"),
		Entry("a cycle over two configs", func(ctx context.Context, s shop) *v1alpha1.WeederConfig {
			s.upstream(ctx, "etcd")
			s.upstream(ctx, "api")
			create(ctx, s.weeder("first", "etcd", "api"))
			return s.weeder("second", "api", "etcd")
		}, "api → etcd → api"),
	)
})
