package weederconfig

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// heard is how long news may be on their way to the manager, and what it does at once to the API server, on a machine that isn't starved.
const heard = time.Second

// span has a moment in it: that of a change, from before the request for it to after its answer.
type span struct{ from, to time.Time }

func during(change func()) (s span) {
	s.from = time.Now()
	change()
	s.to = time.Now()
	return s
}

// clockwork is a shop in which the spec itself says when a Service is Ready and when a pod crash-loops: slices and pods' states
// are its own, and no node plays them, but for the pod behind the Service.
type clockwork struct {
	shop
	backing corev1.Pod
	config  *v1alpha1.WeederConfig
}

// newClockwork has a Service that isn't Ready, and a config whose windows last so long.
func newClockwork(ctx context.Context, watchDuration string) clockwork {
	GinkgoHelper()
	c := clockwork{shop: newShop(ctx)}
	c.deploy(ctx, "etcd", 1, nil)
	c.backing = c.pods(ctx, "etcd")[0]
	Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(c.namespace, "etcd"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})).To(Succeed())
	c.turn(ctx, false)
	c.config = c.weeder("exact", "etcd", "api")
	c.config.Spec.WatchDuration, c.config.Spec.MaxDeletionsPerWatch = v1alpha1.Duration(watchDuration), ptr.To[int32](1000)
	c.config.Spec.ServicesAndDependantSelectors["etcd"].PodSelectors[0].MatchLabels = map[string]string{"weed": "true"}
	create(ctx, c.config)
	return c
}

// turn makes the pod behind the Service ready or not, and then the Service. News of slices may overtake those of pods: before the pod is Ready
// again, the manager has heard that it isn't, or it would take the recovery for as old as the pod was Ready before.
func (c clockwork) turn(ctx context.Context, ready bool) span {
	GinkgoHelper()
	s := during(func() {
		c.label(ctx, "etcd", unready, !ready)
		Eventually(c.ready).WithContext(ctx).WithArguments("etcd").Should(Equal(map[bool]int{true: 1, false: 0}[ready]))
		c.write(ctx, "etcd", "etcd", ready, c.backing)
	})
	if !ready {
		Eventually(time.Now).Should(BeTemporally(">", s.to.Add(heard)))
	}
	return s
}

// add makes a pod that depends on the Service, of a workload of its own: replacements would have to wait for the cooldown.
func (c clockwork) add(ctx context.Context, name string) *corev1.Pod {
	GinkgoHelper()
	owner := &corev1.ConfigMap{ObjectMeta: named(c.namespace, name)}
	Expect(h.Client.Create(ctx, owner)).To(Succeed())
	return c.unplayed(ctx, name, func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		p.Labels = map[string]string{"weed": "true"}
	})
}

// lateness is what heard is on the machine as it is: a request of the spec's own takes far less of it than news on their way through API
// server, manager and API server.
func lateness(crashed map[string]span) time.Duration {
	late := heard
	for _, s := range crashed {
		late = max(late, 3*s.to.Sub(s.from))
	}
	return late
}

// crashPast makes one new pod after the other crash-loop, a few a second, until one did a second after expectWindow's latest.
func (c clockwork) crashPast(ctx context.Context, end time.Time) map[string]span {
	GinkgoHelper()
	crashed := map[string]span{}
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for last := (span{}); last.from.Before(end.Add(lateness(crashed)).Add(time.Second)); {
		name := fmt.Sprintf("api-%d", len(crashed))
		pod := c.add(ctx, name)
		last = during(func() { c.crash(ctx, pod) })
		crashed[name] = last
		<-pace.C
	}
	return crashed
}

// expectWindow checks that of the pods that crash-looped those in a window were deleted, and no others, by the times in the
// audit log. Of those that began just when it ended nothing is said: news of them, and of the Service, take their time, which is
// taken from those that were deleted, and when a pod turned ready is told to the second.
func (c clockwork) expectWindow(ctx context.Context, opened span, lasts time.Duration, crashed map[string]span) {
	GinkgoHelper()
	quiet(ctx)
	late := lateness(crashed)
	earliest, latest := opened.from.Truncate(time.Second).Add(lasts), opened.to.Add(lasts).Add(late)
	removed, inside, after, news := c.removed(), 0, 0, late
	for name, r := range removed {
		news = max(news, 2*r.Received.Sub(crashed[name].to))
	}
	for name, began := range crashed {
		switch {
		case began.to.Add(news).Before(earliest):
			inside++
			Expect(removed).To(HaveKey(name), "it crash-looped %s before the end", earliest.Sub(began.to))
		case began.from.After(latest):
			after++
			Expect(removed).NotTo(HaveKey(name), "it crash-looped %s after the end", began.from.Sub(latest))
		}
	}
	Expect(inside).To(BeNumerically(">", 0), "none crash-looped before the end")
	Expect(after).To(BeNumerically(">", 0), "none crash-looped after the end")
	for _, r := range c.removals() {
		Expect(r.Received).To(BeTemporally("<", latest), "pod %s: the window was over", r.Pod)
	}
}

var _ = Describe("The end of a window", Serial, func() {
	It("is watchDuration after the recovery: who crash-loops just before is deleted, and just after is not", func(ctx SpecContext) {
		const lasts = 10 * time.Second
		c := newClockwork(ctx, "10s")
		opened := c.turn(ctx, true)
		Eventually(activeWindows(ctx, c.config)).Should(BeEquivalentTo(1))
		told := windowOf(ctx, c.config)
		Expect(told.Time.Time).To(And(BeTemporally(">=", opened.from.Truncate(time.Second)), BeTemporally("<", opened.to.Add(heard))))
		Expect(told.Until.Sub(told.Time.Time)).To(Equal(lasts))
		c.expectWindow(ctx, opened, lasts, c.crashPast(ctx, opened.to.Add(lasts)))
		Eventually(activeWindows(ctx, c.config)).Should(BeZero())
	})

	It("is put off by another recovery in it, and by no other news of a Service that is Ready", func(ctx SpecContext) {
		const lasts = 20 * time.Second
		c := newClockwork(ctx, "20s")
		first := c.turn(ctx, true)
		Eventually(time.Now).Should(BeTemporally(">", first.to.Add(lasts/2)))
		c.turn(ctx, false)
		second := c.turn(ctx, true)
		Eventually(time.Now).Should(BeTemporally(">", first.to.Add(lasts+heard)), "the first window would be over")
		c.write(ctx, "etcd", "another", true, c.backing)
		c.expectWindow(ctx, second, lasts, c.crashPast(ctx, second.to.Add(lasts)))
	})
})
