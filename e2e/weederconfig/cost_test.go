package weederconfig

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

var _ = Describe("A window", Serial, func() {
	It("costs no goroutine, no watch and no request but Events, which are paced", func(ctx SpecContext) {
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
		asked, running, began := proxy.snapshot(), goroutines(ctx), time.Now()

		for i := range services {
			name := fmt.Sprintf("service-%d", i)
			s.write(ctx, name, name, true, pod)
		}
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(services))
		more := proxy.since(asked)
		Expect(sets.KeySet(more).Difference(sets.New("PATCH weederconfigs/status"))).To(BeEmpty())
		most := 2 + int(time.Since(began)/time.Second)
		Expect(more["PATCH weederconfigs/status"]).To(BeNumerically("<=", most), "one a second at most, for all windows together")
		// A few come and go with connections and Events; one a window would be 50.
		Expect(goroutines(ctx) - running).To(BeNumerically("<", services/5))

		By("telling of recoveries by Events on Service and config: at most 25 at once, and 5 a second")
		quiet(ctx)
		most = 2 * (25 + 5*int(time.Since(began)/time.Second+1))
		Expect(eventsSince(asked)).To(And(BeNumerically(">=", 2), BeNumerically("<=", min(most, 2*services))))

		Expect(asked["WATCH customresourcedefinitions"]).To(BeNumerically(">=", 4), "kinds of routes are waited for, not asked for")

		By("idle, with all of them open, it asks for nothing")
		asked = proxy.snapshot()
		Consistently(func() map[string]int { return proxy.since(asked) }).WithTimeout(5 * time.Second).Should(BeEmpty())
		Expect(eventsSince(asked)).To(BeZero())
	})
})

// eventsSince is how often Events were written after a count was taken.
func eventsSince(before map[string]int) (writes int) {
	for what, n := range proxy.snapshot() {
		if strings.HasSuffix(what, " events") {
			writes += n - before[what]
		}
	}
	return writes
}

// quiet waits until the manager has nothing more to ask for a moment.
func quiet(ctx context.Context) {
	GinkgoHelper()
	Eventually(proxy.quiet).WithContext(ctx).Should(BeNumerically(">", moment))
}
