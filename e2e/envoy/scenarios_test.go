package envoy

import (
	"fmt"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/resourcestack/autohealer/internal/xds"
)

// scene has one cluster behind one listener, and its hosts.
func scene(t *testing.T, tcp bool, hosts int, detect detection) (*control, *Envoy, []*Backend) {
	t.Helper()
	c := serve(t, xds.Options{})
	all := backends(t, hosts)
	c.cluster(web, detect, all...)
	c.publish()
	e := c.envoy(Listener{Name: "web", Cluster: web, TCP: tcp})
	c.acked(web, 1)
	NewWithT(t).Eventually(func() []Host { return e.Hosts(web) }, "10s").Should(HaveLen(hosts))
	return c, e, all
}

func addresses(backends ...*Backend) []string {
	out := []string{}
	for _, b := range backends {
		out = append(out, b.Address)
	}
	return out
}

func TestNErrorsInARowEjectAndFewerDoNot(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, false, 1, func(*clusterv3.Cluster) {})
	hosts[0].Answer(500)
	g.Expect(e.Statuses("web", 4)).To(Equal(map[int]int{500: 4}))
	hosts[0].Answer(200)
	g.Expect(e.Statuses("web", 1)).To(Equal(map[int]int{200: 1}), "a success resets the count")
	hosts[0].Answer(500)
	g.Expect(e.Statuses("web", 4)).To(Equal(map[int]int{500: 4}))
	g.Consistently(func() []string { return e.Ejected(web) }, "400ms").Should(BeEmpty())
	g.Expect(e.Statuses("web", 1)).To(Equal(map[int]int{500: 1}))
	g.Eventually(func() []string { return e.Ejected(web) }, "10s").Should(Equal(addresses(hosts...)))
	g.Eventually(func() map[int]int { return e.Statuses("web", 2) }, "10s").Should(Equal(map[int]int{503: 2}), "panic 0: nobody is left to ask")
	g.Eventually(func() []Event { return e.Events(web) }, "30s").Should(HaveLen(1))
	event := e.Events(web)[0]
	g.Expect([]any{event.Type, event.Action, event.UpstreamURL, event.NumEjections, event.Enforced}).To(Equal(
		[]any{"CONSECUTIVE_5XX", "EJECT", hosts[0].Address, 1, true}))
}

func TestOnlyTheFailingHostIsEjected(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, false, 3, func(*clusterv3.Cluster) {})
	hosts[1].Answer(500)
	g.Eventually(func() []string { e.Statuses("web", 3); return e.Ejected(web) }, "10s").Should(Equal(addresses(hosts[1])))
	// The worker hears of it a moment after the admin page tells it.
	g.Eventually(func() map[int]int { return e.Statuses("web", 6) }, "10s").Should(Equal(map[int]int{200: 6}))
	hits := hosts[1].Hits()
	g.Expect(e.Statuses("web", 20)).To(Equal(map[int]int{200: 20}))
	g.Expect(hosts[1].Hits()).To(Equal(hits))
}

func TestObserveCountsAndEjectsNobody(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, false, 2, func(c *clusterv3.Cluster) { c.OutlierDetection.EnforcingConsecutive_5Xx = wrapperspb.UInt32(0) })
	hosts[0].Answer(500)
	e.Statuses("web", 40)
	g.Eventually(func() int64 {
		return e.Stat("cluster.shop/web/80.outlier_detection.ejections_detected_consecutive_5xx")
	}, "10s").Should(BeNumerically(">", 0))
	g.Expect(e.Ejected(web)).To(BeEmpty())
	g.Expect(e.Stat("cluster.shop/web/80.outlier_detection.ejections_enforced_total")).To(BeZero())
}

// enforced are the types of the ejections in the log that took place. Envoy also logs those that a detector which is off
// would have made, as that of gateway failures.
func enforced(e *Envoy) []string {
	var types []string
	for _, event := range e.Events(web) {
		if event.Action == "EJECT" && event.Enforced {
			types = append(types, event.Type)
		}
	}
	return types
}

// split counts local failures apart: 5 of those, and errors of its own as given; 0 ignores them.
func split(errors uint32) detection {
	return func(c *clusterv3.Cluster) {
		d := c.OutlierDetection
		d.SplitExternalLocalOriginErrors, d.ConsecutiveLocalOriginFailure, d.EnforcingLocalOriginSuccessRate = true, wrapperspb.UInt32(5), wrapperspb.UInt32(0)
		d.Consecutive_5Xx = wrapperspb.UInt32(errors)
		if errors == 0 {
			d.Consecutive_5Xx, d.EnforcingConsecutive_5Xx = nil, wrapperspb.UInt32(0)
		}
	}
}

func TestARefusedConnectionCountsAsAServerErrorUnlessSplit(t *testing.T) {
	for name, c := range map[string]struct {
		detect detection
		kind   string
	}{
		"together": {func(*clusterv3.Cluster) {}, "CONSECUTIVE_5XX"},
		"split":    {split(10), "CONSECUTIVE_LOCAL_ORIGIN_FAILURE"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, e, hosts := scene(t, false, 2, c.detect)
			hosts[0].Refuse()
			e.Statuses("web", 30)
			g.Eventually(func() []string { return e.Ejected(web) }, "10s").Should(Equal(addresses(hosts[0])))
			g.Eventually(func() []string { return enforced(e) }, "30s").Should(Equal([]string{c.kind}))
		})
	}
}

func TestSplitWithoutServerErrorsIgnoresExternalOnes(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, false, 2, split(0))
	hosts[0].Answer(500)
	e.Statuses("web", 60)
	g.Consistently(func() []string { return e.Ejected(web) }, "400ms").Should(BeEmpty())
	hosts[0].Refuse()
	e.Statuses("web", 30)
	g.Eventually(func() []string { return e.Ejected(web) }, "10s").Should(Equal(addresses(hosts[0])))
}

func TestSplitCountsTenErrorsOrFiveFailures(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, false, 1, split(10))
	hosts[0].Answer(500)
	g.Expect(e.Statuses("web", 9)).To(Equal(map[int]int{500: 9}))
	g.Consistently(func() []string { return e.Ejected(web) }, "400ms").Should(BeEmpty())
	e.Statuses("web", 1)
	g.Eventually(func() []string { return e.Ejected(web) }, "10s").Should(HaveLen(1))
}

func TestConnectionsOfTCPCount(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, true, 2, func(*clusterv3.Cluster) {})
	by, err := e.Dial("web")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(addresses(hosts...)).To(ContainElement(by))
	hosts[0].Refuse()
	g.Eventually(func() []string { _, _ = e.Dial("web"); return e.Ejected(web) }, "20s").Should(Equal(addresses(hosts[0])))
	// The worker hears of it a moment after the admin page tells it.
	g.Eventually(func(g Gomega) {
		for range 6 {
			g.Expect(e.Dial("web")).To(Equal(hosts[1].Address))
		}
	}, "10s").Should(Succeed())
	for range 10 {
		by, err := e.Dial("web")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(by).To(Equal(hosts[1].Address))
	}
}

func TestAHostComesBackAfterBaseTimesItsEjections(t *testing.T) {
	g := NewWithT(t)
	const base, most = time.Second, 2 * time.Second
	_, e, hosts := scene(t, false, 2, func(c *clusterv3.Cluster) {
		d := c.OutlierDetection
		d.Interval, d.BaseEjectionTime, d.MaxEjectionTime = durationpb.New(300*time.Millisecond), durationpb.New(base), durationpb.New(most)
	})
	hosts[0].Answer(500)
	// The third would be for 3 s, but the cap is 2. The count of ejections falls by one at each sweep that finds the host
	// healthy, so it must fail again before the next.
	for _, want := range []time.Duration{base, 2 * base, most} {
		g.Eventually(func() []string { e.Statuses("web", 12); return e.Ejected(web) }, "10s", "1ms").Should(HaveLen(1))
		began := time.Now()
		g.Eventually(func() []string { return e.Ejected(web) }, "10s", "5ms").Should(BeEmpty())
		took := time.Since(began)
		// It was ejected a moment before it was seen, and comes back with a sweep.
		g.Expect(took).To(BeNumerically(">=", want-100*time.Millisecond))
		g.Expect(took).To(BeNumerically("<", want+600*time.Millisecond))
	}
}

func TestWhoMayBeEjectedAtATime(t *testing.T) {
	for _, c := range []struct {
		percent uint32
		hosts   int
		always  bool
		want    int
	}{
		{10, 5, false, 0}, {10, 5, true, 1}, {10, 9, false, 0}, {10, 10, false, 1}, {10, 10, true, 1},
		{50, 4, false, 2}, {50, 5, true, 2}, {0, 3, false, 0}, {0, 3, true, 1}, {100, 3, false, 3}, {33, 3, false, 0}, {34, 3, false, 1},
	} {
		t.Run(fmt.Sprintf("%d%% of %d, always one: %v", c.percent, c.hosts, c.always), func(t *testing.T) {
			g := NewWithT(t)
			_, e, hosts := scene(t, false, c.hosts, func(x *clusterv3.Cluster) {
				x.OutlierDetection.MaxEjectionPercent = wrapperspb.UInt32(c.percent)
				if c.always {
					x.OutlierDetection.AlwaysEjectOneHost = wrapperspb.Bool(true)
				}
			})
			for _, h := range hosts {
				h.Answer(500)
			}
			g.Eventually(func() []string { e.Statuses("web", 5*c.hosts); return e.Ejected(web) }, "10s").Should(HaveLen(c.want))
			g.Consistently(func() []string { e.Statuses("web", c.hosts); return e.Ejected(web) }, "300ms").Should(HaveLen(c.want))
		})
	}
}

func TestInAPanicTrafficFlowsToEjectedHosts(t *testing.T) {
	for panicAt, want := range map[float64]int{0: 503, 50: 500} {
		t.Run(fmt.Sprint(panicAt), func(t *testing.T) {
			g := NewWithT(t)
			_, e, hosts := scene(t, false, 2, func(c *clusterv3.Cluster) { c.CommonLbConfig.HealthyPanicThreshold.Value = panicAt })
			for _, h := range hosts {
				h.Answer(500)
			}
			g.Eventually(func() []string { e.Statuses("web", 5); return e.Ejected(web) }, "10s").Should(HaveLen(2))
			g.Eventually(func() map[int]int { return e.Statuses("web", 10) }, "10s").Should(Equal(map[int]int{want: 10}))
			g.Expect(e.Statuses("web", 10)).To(Equal(map[int]int{want: 10}))
		})
	}
}

func TestJitterLengthensEjectionsWithinItsBound(t *testing.T) {
	g := NewWithT(t)
	const base, jitter, hosts = time.Second, 2 * time.Second, 8
	_, e, all := scene(t, false, hosts, func(c *clusterv3.Cluster) {
		d := c.OutlierDetection
		d.BaseEjectionTime, d.MaxEjectionTime, d.MaxEjectionTimeJitter = durationpb.New(base), durationpb.New(base), durationpb.New(jitter)
	})
	for _, h := range all {
		h.Answer(500)
	}
	began := time.Now()
	g.Eventually(func() []string { e.Statuses("web", 10); return e.Ejected(web) }, "5s", "1ms").Should(HaveLen(hosts))
	back := map[string]time.Duration{}
	g.Eventually(func() int {
		for _, h := range e.Hosts(web) {
			if _, seen := back[h.Address]; !h.Ejected && !seen {
				back[h.Address] = time.Since(began)
			}
		}
		return len(back)
	}, "10s", "5ms").Should(Equal(hosts))
	distinct := map[time.Duration]bool{}
	for _, took := range back {
		g.Expect(took).To(BeNumerically(">=", base-300*time.Millisecond))
		g.Expect(took).To(BeNumerically("<=", base+jitter+500*time.Millisecond))
		distinct[took.Round(100*time.Millisecond)] = true
	}
	g.Expect(len(distinct)).To(BeNumerically(">", 1), "not all at a time: %v", back)
}

func TestTheSuccessRateNeverEjects(t *testing.T) {
	g := NewWithT(t)
	_, e, hosts := scene(t, false, 6, func(c *clusterv3.Cluster) {
		// What is off is fed with what would make it fire: five hosts and a hundred requests in an interval each.
		d := c.OutlierDetection
		d.Interval, d.SuccessRateMinimumHosts, d.SuccessRateRequestVolume = durationpb.New(time.Second), wrapperspb.UInt32(3), wrapperspb.UInt32(10)
		d.EnforcingConsecutive_5Xx = wrapperspb.UInt32(0)
	})
	hosts[0].Answer(500)
	detected := func() int64 {
		e.Statuses("web", 200)
		return e.Stat("cluster.shop/web/80.outlier_detection.ejections_detected_success_rate")
	}
	g.Eventually(detected, "20s", "10ms").Should(BeNumerically(">", 0), "it would have")
	g.Expect(e.Ejected(web)).To(BeEmpty())
	g.Expect(e.Stat("cluster.shop/web/80.outlier_detection.ejections_enforced_success_rate")).To(BeZero())
}
