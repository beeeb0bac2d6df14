package weederconfig

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// deletesPod says whether a request is a DELETE of a pod in the shop.
func (s shop) deletesPod(r *http.Request) bool {
	return r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/namespaces/"+s.namespace+"/pods/")
}

// notes says whether a request is one that notes deletions in a config's status.
func notes(r *http.Request) bool {
	return r.Method == http.MethodPatch && resourceOf(r.URL.Path) == "weederconfigs/status"
}

var _ = Describe("In a window", Serial, func() {
	AfterEach(func() { proxy.answerBy(nil) })

	It("what the API server refuses for a while is deleted later, once, and nothing after its end", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", 5, nil)
		s.deploy(ctx, "late", 1, nil)
		wc := s.weeder("refused", "etcd", "api", "late")
		wc.Spec.WatchDuration = "90s"
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.fail(ctx, "api")
		before, late := s.uids(ctx, "api"), s.uids(ctx, "late")

		By("too many requests: neither notes nor deletions come through")
		proxy.answerBy(func(r *http.Request) (int, bool) {
			if s.deletesPod(r) || notes(r) {
				return http.StatusTooManyRequests, false
			}
			return 0, false
		})
		busy := proxy.refusals(http.StatusTooManyRequests)
		s.up(ctx, "etcd")
		recovered := time.Now()
		ends := recovered.Add(90 * time.Second)
		Eventually(proxy.refusals).WithArguments(http.StatusTooManyRequests).Should(BeNumerically(">=", busy+3))

		By("trouble within: notes come through, deletions don't, and of one that does neither answer nor watch tell")
		tell := proxy.stall("pods")
		DeferCleanup(tell)
		var lost atomic.Bool
		proxy.answerBy(func(r *http.Request) (int, bool) {
			if s.deletesPod(r) {
				return http.StatusInternalServerError, lost.CompareAndSwap(false, true)
			}
			return 0, false
		})
		broken := proxy.refusals(http.StatusInternalServerError)
		Eventually(proxy.refusals).WithArguments(http.StatusInternalServerError).Should(BeNumerically(">=", broken+10))
		Expect(s.removed()).To(HaveLen(1), "the one whose answer was lost")

		By("all is well again")
		tell()
		proxy.answerBy(nil)
		Eventually(s.removed).Should(HaveLen(5))
		for _, uid := range before {
			Expect(s.removed()).To(ContainElement(HaveField("UID", uid)))
		}
		Expect(s.uids(ctx, "late")).To(Equal(late))

		By("trouble until the window is over")
		broken = proxy.refusals(http.StatusInternalServerError)
		proxy.answerBy(func(r *http.Request) (int, bool) {
			if s.deletesPod(r) {
				return http.StatusInternalServerError, false
			}
			return 0, false
		})
		s.fail(ctx, "late")
		Eventually(proxy.refusals).WithArguments(http.StatusInternalServerError).Should(BeNumerically(">", broken))
		Eventually(activeWindows(ctx, wc)).WithTimeout(2 * time.Minute).Should(BeZero())
		proxy.answerBy(nil)
		quiet(ctx)
		Expect(s.uids(ctx, "late")).To(Equal(late))
		for _, r := range s.removals() {
			Expect(r.Received).To(BeTemporally("<", ends.Add(heard)), "pod %s: the window was over", r.Pod)
		}
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(5), "what didn't happen isn't counted")
	})

	It("a restart of the API server changes neither its end nor its budget", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		s.deploy(ctx, "api", 6, nil)
		s.deploy(ctx, "late", 1, nil)
		s.deploy(ctx, "last", 1, nil)
		wc := s.weeder("restarted", "etcd", "api", "late", "last")
		wc.Spec.WatchDuration, wc.Spec.MaxDeletionsPerWatch = "10m", ptr.To[int32](7)
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.fail(ctx, "api")
		before := s.uids(ctx, "api")

		By("killing it when all deletions are noted and on their way")
		arrive := make(chan struct{})
		proxy.beforeEach(func(r *http.Request) {
			if s.deletesPod(r) {
				select {
				case <-arrive:
				case <-r.Context().Done():
				}
			}
		})
		DeferCleanup(func() { proxy.beforeEach(nil) })
		s.up(ctx, "etcd")
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(6))
		watching.Check(ctx) // it saw the notes: what it is told after a restart may leave out what was before
		Expect(h.Kill(cluster.APIServer, syscall.SIGKILL)).To(Succeed())
		proxy.beforeEach(nil)
		close(arrive)
		Expect(h.RestartAPIServer(ctx)).To(Succeed())

		By("all go, each once")
		Eventually(s.removed).Should(HaveLen(6))
		for _, uid := range before {
			Expect(s.removed()).To(ContainElement(HaveField("UID", uid)))
		}
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(6))
		st, err := status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Windows).To(HaveLen(1))
		ends := st.Windows[0].Until

		By("it goes on, and ends and is spent as before")
		Expect(h.RestartAPIServer(ctx)).To(Succeed())
		edit(ctx, wc, func(wc *v1alpha1.WeederConfig) {
			wc.Annotations = map[string]string{"e2e.example.com/restarted": "yes"}
		})
		watching.Check(ctx) // it watches again
		s.label(ctx, "late", crash, true)
		Eventually(s.removed).Should(HaveLen(7))
		s.fail(ctx, "last")
		Eventually(skipped(ctx, wc, "MaxDeletionsPerWatch")).Should(BeNumerically(">=", 1))
		st, err = status(ctx, wc)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Windows).To(HaveLen(1))
		Expect(st.Windows[0]).To(And(HaveField("Until", ends), HaveField("Deleted", BeEquivalentTo(7))))
		Expect(s.removed()).To(HaveLen(7))
	})

	It("a standby goes on where a leader was killed: to the same end, with what is left of the budget, whatever its watch told", func(ctx SpecContext) {
		theirs := startTwo(ctx)
		s := newShop(ctx)
		s.upstream(ctx, "etcd", 1)
		for _, app := range []string{"first", "second", "third"} {
			s.deploy(ctx, app, 1, nil)
		}
		wc := s.weeder("failover", "etcd", "first", "second", "third")
		wc.Spec.WatchDuration, wc.Spec.MaxDeletionsPerWatch = "10m", ptr.To[int32](3)
		create(ctx, wc)
		s.down(ctx, "etcd")
		s.fail(ctx, "first")
		tell := theirs.stall("weederconfigs")
		DeferCleanup(tell)
		s.up(ctx, "etcd")
		Eventually(s.removed).Should(HaveLen(1))
		Eventually(deleted(ctx, wc)).Should(BeEquivalentTo(1))
		before := windowOf(ctx, wc)

		By("killing the leader when a deletion is noted and on its way")
		first, err := leader(ctx)()
		Expect(err).NotTo(HaveOccurred())
		killed := make(chan error, 1)
		var once sync.Once
		proxy.answerBy(func(r *http.Request) (code int, lost bool) {
			if s.deletesPod(r) {
				once.Do(func() {
					killed <- h.Kill(harness.Manager, syscall.SIGKILL)
					code = http.StatusServiceUnavailable // it never arrives
				})
			}
			return code, false
		})
		s.fail(ctx, "second")
		Eventually(killed).Should(Receive(BeNil()))
		Expect(h.StopComponent(harness.Manager)).To(Succeed()) // waits until it is gone
		Expect(s.removed()).To(HaveLen(1))
		Eventually(leader(ctx)).WithTimeout(time.Minute).ShouldNot(BeElementOf(first, ""), "the other should take over")

		By("it deletes what is left to delete, and takes the deletion that never arrived for done")
		Eventually(s.removed).Should(HaveLen(2))
		Eventually(deleted(ctx, wc)).Should(BeNumerically(">=", 2))
		s.fail(ctx, "third")
		Consistently(s.removed).WithTimeout(moment).Should(HaveLen(2))
		tell()
		Eventually(skipped(ctx, wc, "MaxDeletionsPerWatch")).Should(BeNumerically(">=", 1))
		Expect(s.removed()).To(And(HaveLen(2), HaveKey(HavePrefix("first-")), HaveKey(HavePrefix("second-"))))
		after := windowOf(ctx, wc)
		Expect(after.Until.Time).To(BeTemporally("~", before.Until.Time, 2*time.Second), "both saw the Service turn Ready")
		Expect(after.Deleted).To(BeEquivalentTo(3))
	})
})

const standby = cluster.Component("standby")

// startTwo has two managers until the end of the spec, of which the first leads; each by way of a proxy, and gives that of the
// other.
func startTwo(ctx context.Context) (theirs *countingProxy) {
	GinkgoHelper()
	elected := func(by *countingProxy) []string {
		return []string{"--leader-elect", "--kubeconfig=" + by.kubeconfig(ctx)}
	}
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(h.StartManager(ctx, "--kubeconfig="+proxy.kubeconfig(ctx))).To(Succeed())
	})
	Expect(h.StartManager(ctx, elected(proxy)...)).To(Succeed())
	Eventually(leader(ctx)).ShouldNot(BeEmpty())
	theirs = startProxy(standby)
	Expect(h.StartReplica(ctx, standby, elected(theirs)...)).To(Succeed())
	return theirs
}

// leader holds the managers' lease.
func leader(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		var lease coordinationv1.Lease
		err := h.Client.Get(ctx, clientKey(harness.Namespace, "autohealer-manager"), &lease)
		return ptr.Deref(lease.Spec.HolderIdentity, ""), err
	}
}

// windowOf is a config's one window.
func windowOf(ctx context.Context, wc *v1alpha1.WeederConfig) v1alpha1.RecoveryWindow {
	GinkgoHelper()
	st, err := status(ctx, wc)
	Expect(err).NotTo(HaveOccurred())
	Expect(st.Windows).To(HaveLen(1))
	return st.Windows[0]
}
