package weederconfig

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A recovery", func() {
	It("restarts what crash-looped meanwhile, as in the seed's timeline", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 3)
		s.deploy(ctx, "apiserver", 2, nil)
		wc := s.weeder("timeline", "etcd", "apiserver")
		wc.Spec.WatchDuration = "1m"
		create(ctx, wc)
		Expect(activeWindows(ctx, wc)()).To(BeZero())
		before := s.uids(ctx, "apiserver")

		By("t=0: all etcd pods go down")
		s.down(ctx, "etcd")
		By("t=10: API servers crash-loop, and nothing is done")
		s.fail(ctx, "apiserver")
		Consistently(s.uids).WithContext(ctx).WithArguments("apiserver").WithTimeout(moment).Should(Equal(before))
		By("t=100: etcd recovers; the API servers are deleted and their ReplicaSet's new ones come up")
		s.up(ctx, "etcd")
		Eventually(s.uids).WithContext(ctx).WithArguments("apiserver").Should(And(HaveLen(2), Not(ContainElements(before[0])), Not(ContainElements(before[1]))))
		Eventually(s.ready).WithContext(ctx).WithArguments("apiserver").Should(Equal(2))
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(2))

		st, err := status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.LastTriggered).To(HaveValue(And(HaveField("Service", "etcd"), HaveField("Namespace", s.namespace))))
		Expect(st.RecentDeletions).To(HaveLen(2))
		Expect(st.RecentDeletions[0]).To(And(HaveField("Owner", "Deployment/apiserver"), HaveField("Service", "etcd"), HaveField("Repeats", BeZero())))
		Eventually(s.events).WithContext(ctx).WithArguments("PodDeleted").Should(And(
			HaveKeyWithValue("WeederConfig", ContainSubstring("Service etcd recovered at")),
			HaveKeyWithValue("ReplicaSet", ContainSubstring("container main exited with code 1 after 1 restarts")),
		))
		Eventually(s.events).WithContext(ctx).WithArguments("ServiceRecovered").Should(HaveKey("Service"))
	})

	It("restarts at once more than a status has room to name", func(ctx SpecContext) {
		const many = 30
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", many, nil)
		wc := s.weeder("many", "etcd", "api")
		wc.Spec.WatchDuration = "2m"
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.fail(ctx, "api")
		s.up(ctx, "etcd")
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(many))
		Eventually(s.crashing).WithContext(ctx).WithArguments("api").Should(BeZero())
		Eventually(s.acts).Should(HaveLen(many), "a line each, once the manager has the answer")
		st, err := status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.RecentDeletions).To(HaveLen(20))
	})

	It("is none when a Service turns notReady, is deleted or scaled to zero", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", 1, nil)
		wc := s.weeder("nothing", "etcd", "api")
		wc.Spec.WatchDuration = "3s"
		create(ctx, wc)
		Expect(activeWindows(ctx, wc)()).To(BeZero())
		st, err := status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		last := st.LastTriggered
		s.fail(ctx, "api")
		before := s.uids(ctx, "api")
		nothing := func() {
			GinkgoHelper()
			Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))
			st, err := status(ctx, wc)
			Expect(err).NotTo(HaveOccurred())
			Expect(st.LastTriggered).To(Equal(last))
		}
		s.down(ctx, "etcd")
		nothing()
		By("scaled to zero: its slice is empty")
		s.scale(ctx, "etcd", 0)
		Eventually(s.uids).WithContext(ctx).WithArguments("etcd").Should(BeEmpty())
		nothing()
		By("deleted, with its slices")
		Expect(h.Client.Delete(ctx, &corev1.Service{ObjectMeta: named(s.namespace, "etcd")})).To(Succeed())
		Eventually(s.slices).WithContext(ctx).WithArguments("etcd").Should(BeEmpty())
		nothing()
	})

	It("is over when the Service is notReady again, and the next one finds its budget whole", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", 3, nil)
		wc := s.weeder("flapping", "etcd", "api")
		wc.Spec.MaxDeletionsPerWatch = ptr.To[int32](3)
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.up(ctx, "etcd")
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(1))
		before := s.uids(ctx, "api")
		s.down(ctx, "etcd")
		Eventually(activeWindows(ctx, wc)).Should(BeZero())
		s.fail(ctx, "api")
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))
		s.up(ctx, "etcd")
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(3))
	})

	It("is one for all slices of a Service together", func(ctx SpecContext) {
		s := newShop(ctx)
		s.deploy(ctx, "etcd", 2, nil)
		s.deploy(ctx, "api", 1, nil)
		etcd := s.pods(ctx, "etcd")
		Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, "etcd"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})).To(Succeed())
		s.write(ctx, "etcd", "etcd-a", false, etcd[0])
		s.write(ctx, "etcd", "etcd-b", false, etcd[1])
		wc := s.weeder("slices", "etcd", "api")
		wc.Spec.WatchDuration = "40s" // the pods turned ready before the slices say so
		create(ctx, wc)
		Consistently(activeWindows(ctx, wc)).WithTimeout(moment).Should(BeZero())
		s.write(ctx, "etcd", "etcd-c", true)
		Consistently(activeWindows(ctx, wc)).WithTimeout(moment).Should(BeZero(), "an empty slice makes nothing Ready")
		s.write(ctx, "etcd", "etcd-a", true, etcd[0])
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(1))
		Eventually(activeWindows(ctx, wc)).WithTimeout(time.Minute).Should(BeZero())
		s.write(ctx, "etcd", "etcd-b", true, etcd[1])
		Consistently(activeWindows(ctx, wc)).WithTimeout(moment).Should(BeZero(), "it was Ready before")
	})

	It("of which a watch tells late opens what is left of its window, and none when that is over", func(ctx SpecContext) {
		const lasts = 15 * time.Second
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.upstream(ctx, "other", 1)
		s.deploy(ctx, "api", 1, nil)
		wc := s.weeder("late", "etcd", "api")
		wc.Spec.WatchDuration = "15s"
		wc.Spec.ServicesAndDependantSelectors["other"] = s.weeder("", "other", "none").Spec.ServicesAndDependantSelectors["other"]
		create(ctx, wc)
		recover := func(app string) (recovered time.Time) {
			GinkgoHelper()
			s.down(ctx, app)
			s.up(ctx, app)
			return s.readySince(ctx, app)
		}

		By("telling of it after a while")
		before := s.uids(ctx, "api")
		s.fail(ctx, "api")
		tell := proxy.stall("endpointslices")
		DeferCleanup(tell)
		recovered := recover("etcd")
		Eventually(time.Now).Should(BeTemporally(">", recovered.Add(lasts/3)))
		tell()
		Eventually(s.uids).WithContext(ctx).WithArguments("api").ShouldNot(ContainElements(before))
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(1))
		told := windowOf(ctx, wc)
		Expect(told.Time.Time).To(BeTemporally("~", recovered, 2*time.Second), "the API server's clock is known to the second")
		Expect(told.Until.Sub(told.Time.Time)).To(Equal(lasts))
		Eventually(activeWindows(ctx, wc)).Should(BeZero())

		By("telling of another when it is over")
		s.fail(ctx, "api")
		before = s.uids(ctx, "api")
		tell = proxy.stall("endpointslices")
		DeferCleanup(tell)
		recovered = recover("etcd")
		Eventually(time.Now).Should(BeTemporally(">", recovered.Add(lasts+2*time.Second)))
		recover("other")
		tell()
		Eventually(activeWindows(ctx, wc)).Should(BeEquivalentTo(1))
		Expect(windowOf(ctx, wc).Service).To(Equal("other"), "which the watch tells of last")
		Consistently(s.uids).WithContext(ctx).WithArguments("api").WithTimeout(moment).Should(Equal(before))
	})

	It("lets its window go on after kill -9, to the same end", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "early", 1, nil)
		s.deploy(ctx, "late", 1, nil)
		wc := s.weeder("goes-on", "etcd", "early", "late")
		wc.Spec.WatchDuration, wc.Spec.MaxDeletionsPerWatch = "3m", ptr.To[int32](2)
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.fail(ctx, "early")
		s.up(ctx, "etcd")
		Eventually(s.removed).Should(HaveLen(1), "the status tells of it before")
		Expect(deleted(ctx, wc)()).To(BeEquivalentTo(1))
		Expect(activeWindows(ctx, wc)()).To(BeEquivalentTo(1))
		before, err := status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		killManager()
		late := s.uids(ctx, "late")
		s.fail(ctx, "late")
		startManager(ctx)
		Eventually(s.uids).WithContext(ctx).WithArguments("late").Should(And(HaveLen(1), Not(Equal(late))))
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(2))
		after, err := status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Windows).To(HaveLen(1))
		Expect(after.Windows[0].Until.Time).To(BeTemporally("~", before.Windows[0].Until.Time, 2*time.Second), "now by when the pod turned ready, which is told to the second")
		By("whose budget is spent")
		s.label(ctx, "late", crash, true)
		Eventually(skipped(ctx, wc, "MaxDeletionsPerWatch")).Should(BeEquivalentTo(1))
	})

	It("is noticed on start when it came while the manager was down", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", 1, nil)
		wc := s.weeder("missed", "etcd", "api")
		wc.Spec.WatchDuration = "2m"
		create(ctx, wc)
		Expect(activeWindows(ctx, wc)()).To(BeZero())
		s.down(ctx, "etcd")
		s.fail(ctx, "api")
		before := s.uids(ctx, "api")
		killManager()
		s.up(ctx, "etcd")
		startManager(ctx)
		Eventually(s.uids).WithContext(ctx).WithArguments("api").Should(And(HaveLen(1), Not(Equal(before))))
	})
})

// events are the notes of Events with a reason, by the kind of what they are on.
func (s shop) events(ctx context.Context, reason string) map[string]string {
	GinkgoHelper()
	var list corev1.EventList
	Expect(h.Client.List(ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	notes := map[string]string{}
	for _, e := range list.Items {
		if e.Reason == reason {
			notes[e.InvolvedObject.Kind] = e.Message
		}
	}
	return notes
}

func (s shop) scale(ctx context.Context, app string, replicas int) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "-n", s.namespace, "scale", "deployment", app, fmt.Sprintf("--replicas=%d", replicas))
	Expect(err).NotTo(HaveOccurred())
}
