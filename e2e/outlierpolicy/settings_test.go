package outlierpolicy

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// detecting is an Envoy in front of a Service that has a policy, once it has all hosts.
func detecting(ctx context.Context, s *service, tcp bool, detection string, more ...string) *envoy.Envoy {
	GinkgoHelper()
	s.detect(ctx, detection, more...)
	e := proxyTo(ctx, edge, clients, nil, envoy.Listener{Name: s.cluster(), Cluster: s.cluster(), TCP: tcp})
	Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(len(s.backends)))
	return e
}

var _ = Describe("What an OutlierPolicy sets is what Envoy does", func() {
	It("for TCP: connections that fail eject, counted apart or not", func(ctx SpecContext) {
		for namespace, detection := range map[string]string{
			"tcp-together": "consecutiveServerErrors: 3, ",
			"tcp-split":    "consecutiveServerErrors: 0, splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailure: 3, ",
		} {
			By(namespace)
			s := serve(ctx, namespace, 2)
			e := detecting(ctx, s, true, detection+"maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m")
			by, err := e.Dial(s.cluster())
			Expect(err).NotTo(HaveOccurred())
			Expect(s.addresses(0, 1)).To(ContainElement(by))
			s.backends[0].Refuse()
			Eventually(func() []string { _, _ = e.Dial(s.cluster()); return e.Ejected(s.cluster()) }).Should(Equal(s.addresses(0)))
			Eventually(func(g Gomega) {
				for range 6 {
					g.Expect(e.Dial(s.cluster())).To(Equal(s.backends[1].Address))
				}
			}).Should(Succeed(), "the other gets all connections")
		}
	}, NodeTimeout(4*harness.Within))

	It("for how many at once: a percentage, and one in any case", func(ctx SpecContext) {
		const fast = "consecutiveServerErrors: 3, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m, "
		for _, c := range []struct {
			namespace, detection string
			hosts, want          int
		}{
			{"percent-of-four", "maxEjectionPercent: 50", 4, 2},
			{"percent-of-few", "maxEjectionPercent: 10, alwaysEjectOneHost: false", 3, 0},
			{"percent-but-one", "maxEjectionPercent: 10", 3, 1},
		} {
			By(c.namespace)
			s := serve(ctx, c.namespace, c.hosts)
			e := detecting(ctx, s, false, fast+c.detection)
			for _, b := range s.backends {
				b.Answer(500)
			}
			ejected := func() []string { e.Statuses(s.cluster(), 3*c.hosts); return e.Ejected(s.cluster()) }
			Eventually(func() int64 {
				ejected()
				return e.Stat("cluster." + s.cluster() + ".outlier_detection.ejections_detected_consecutive_5xx")
			}).Should(BeNumerically(">=", c.hosts), "each of them failed often enough")
			Eventually(ejected).Should(HaveLen(c.want))
			Consistently(ejected, "500ms").Should(HaveLen(c.want))
		}
	}, NodeTimeout(4*harness.Within))

	It("for a panic: requests fail without, and go to ejected hosts with", func(ctx SpecContext) {
		for namespace, want := range map[string]struct {
			threshold string
			status    int
		}{"calm": {"panicThreshold: 0", 503}, "panic": {"panicThreshold: 50", 500}} {
			By(namespace)
			s := serve(ctx, namespace, 2)
			e := detecting(ctx, s, false, "consecutiveServerErrors: 3, maxEjectionPercent: 100, interval: 200ms, baseEjectionTime: 10m, maxEjectionTime: 10m", want.threshold)
			for _, b := range s.backends {
				b.Answer(500)
			}
			Eventually(func() []string { e.Statuses(s.cluster(), 6); return e.Ejected(s.cluster()) }).Should(HaveLen(2))
			Eventually(func() map[int]int { return e.Statuses(s.cluster(), 10) }).Should(Equal(map[int]int{want.status: 10}))
		}
	}, NodeTimeout(4*harness.Within))

	It("for jitter: hosts that went together come back apart, within its bound", func(ctx SpecContext) {
		const hosts, base, jitter = 6, time.Second, 3 * time.Second
		s := serve(ctx, "jitter", hosts)
		e := detecting(ctx, s, false, "consecutiveServerErrors: 3, maxEjectionPercent: 100, interval: 100ms, baseEjectionTime: 1s, maxEjectionTime: 3s, maxEjectionTimeJitter: 3s")
		for _, b := range s.backends {
			b.Answer(500)
		}
		began := time.Now()
		Eventually(func() []string { e.Statuses(s.cluster(), 3); return e.Ejected(s.cluster()) }).WithPolling(time.Millisecond).Should(HaveLen(hosts))
		gone, back := time.Now(), map[string]time.Time{}
		Eventually(func() map[string]time.Time {
			for _, host := range e.Hosts(s.cluster()) {
				if _, seen := back[host.Address]; !seen && !host.Ejected {
					back[host.Address] = time.Now()
				}
			}
			return back
		}).Should(HaveLen(hosts))
		apart := map[time.Duration]bool{}
		for address, at := range back {
			Expect(at.Sub(began)).To(BeNumerically(">=", base), address)
			Expect(at.Sub(gone)).To(BeNumerically("<", base+jitter+2*time.Second), address)
			apart[at.Sub(gone).Round(200*time.Millisecond)] = true
		}
		Expect(len(apart)).To(BeNumerically(">", 1), "%v", back)
	}, NodeTimeout(3*harness.Within))

	It("and success rates and failure percentages eject nobody, though they would", func(ctx SpecContext) {
		const hosts = 6 // five with a hundred requests an interval each are what both need
		s := serve(ctx, "rates", hosts)
		e := detecting(ctx, s, false, "consecutiveServerErrors: 1000000, maxEjectionPercent: 100, interval: 3s")
		s.backends[0].Answer(500)
		stop := e.Load(s.cluster())
		stat := func(name string) func() int64 {
			return func() int64 { return e.Stat("cluster." + s.cluster() + ".outlier_detection.ejections_" + name) }
		}
		Eventually(stat("detected_success_rate"), 2*harness.Within).Should(BeNumerically(">", 0))
		Eventually(stat("detected_failure_percentage"), 2*harness.Within).Should(BeNumerically(">", 0))
		stop()
		Expect(stat("enforced_total")()).To(BeZero())
		Expect(e.Ejected(s.cluster())).To(BeEmpty())
	}, NodeTimeout(5*harness.Within))
})
