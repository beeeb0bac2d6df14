package weederconfig

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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
		quiet(ctx) // what the start of this spec caused is over
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
		quiet(ctx)
		asked = proxy.snapshot()
		Consistently(func() map[string]int { return proxy.since(asked) }).WithTimeout(5 * time.Second).Should(BeEmpty())
	})
})

// quiet waits until the manager has nothing more to ask for a moment.
func quiet(ctx context.Context) {
	GinkgoHelper()
	Eventually(proxy.quiet).WithContext(ctx).Should(BeNumerically(">", moment))
}
