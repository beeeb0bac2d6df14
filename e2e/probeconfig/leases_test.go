package probeconfig

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// kubelets plays those of the probed cluster: it renews leases, each by its own clock.
type kubelets struct {
	client client.Client

	mu sync.Mutex
	// clocks are how far each clock is ahead.
	clocks map[string]time.Duration // needs mu
}

// join adds a node whose clock is so far ahead.
func (k *kubelets) join(ctx context.Context, name string, ahead time.Duration) {
	GinkgoHelper()
	k.joinSilent(ctx, name)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clocks[name] = ahead
}

// joinSilent adds a node that never renews its lease.
func (k *kubelets) joinSilent(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(k.client.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	Expect(k.client.Create(ctx, &coordinationv1.Lease{ObjectMeta: named(corev1.NamespaceNodeLease, name)})).To(Succeed())
}

// lose ends a node's renewals; the last one was minutes ago.
func (k *kubelets) lose(ctx context.Context, name string) {
	GinkgoHelper()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.clocks, name)
	Expect(k.renew(ctx, name, -5*time.Minute)).To(Succeed())
}

// remove deletes nodes and leases.
func (k *kubelets) remove(ctx context.Context, names ...string) {
	GinkgoHelper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		delete(k.clocks, name)
		Expect(k.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
}

func (k *kubelets) renew(ctx context.Context, name string, ahead time.Duration) error {
	at := time.Now().Add(ahead).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	lease := &coordinationv1.Lease{ObjectMeta: named(corev1.NamespaceNodeLease, name)}
	return k.client.Patch(ctx, lease, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, at)))
}

// run renews leases every second, until ctx ends.
func (k *kubelets) run(ctx context.Context) {
	defer GinkgoRecover()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		k.mu.Lock()
		for name, ahead := range k.clocks {
			if err := k.renew(ctx, name, ahead); ctx.Err() == nil {
				Expect(err).NotTo(HaveOccurred())
			}
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// emptyProbed removes all nodes of the probed cluster, also those of other specs.
func emptyProbed(ctx context.Context, c client.Client) {
	GinkgoHelper()
	Expect(c.DeleteAllOf(ctx, &corev1.Node{})).To(Succeed())
	Expect(c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(corev1.NamespaceNodeLease))).To(Succeed())
}

// closeBreaker resets the breaker if another spec left it open.
func closeBreaker(ctx context.Context, pc *v1alpha1.ProbeConfig) {
	GinkgoHelper()
	Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)).To(Succeed())
	if id := pc.Status.BreakerID; id != "" {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":%q}}}`, id)
		own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: harness.Namespace}} // the config's own has no say
		Expect(h.Client.Patch(ctx, own, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	}
}

// stranger is a kubeconfig of the probed cluster for an account without any right there.
func stranger(ctx context.Context, c client.Client, address string) []byte {
	GinkgoHelper()
	Expect(c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(metav1.NamespaceDefault, "stranger")})).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(c.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: named(metav1.NamespaceDefault, "stranger")})).To(Succeed())
	})
	path, err := probed.ServiceAccountKubeconfig(ctx, metav1.NamespaceDefault, "stranger")
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.Load(text)
	Expect(err).NotTo(HaveOccurred())
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + address
	}
	text, err = clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return text
}

var _ = Describe("the leases of nodes", Ordered, func() {
	// The configs differ in what they make of one and the same cluster.
	var most, nearlyAll, many, unlisted shoot
	var nodes *kubelets

	BeforeAll(func(ctx SpecContext) {
		underOracle(ctx, nil)
		c, err := client.New(probed.Config, client.Options{Scheme: harness.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		emptyProbed(ctx, c)
		nodes = &kubelets{client: c, clocks: map[string]time.Duration{}}
		for i := range 6 {
			nodes.join(ctx, fmt.Sprintf("lost-%d", i), 0)
		}
		nodes.join(ctx, "steady", 0)
		nodes.join(ctx, "ahead", 5*time.Minute)
		nodes.join(ctx, "behind", -5*time.Minute)
		nodes.joinSilent(ctx, "new")
		running, stop := context.WithCancel(context.Background())
		var renewing sync.WaitGroup
		renewing.Go(func() { nodes.run(running) })
		DeferCleanup(func(ctx context.Context) {
			stop()
			renewing.Wait()
			emptyProbed(ctx, c)
		})

		cap := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "leases"}, Spec: v1alpha1.GuardrailSpec{Limits: &v1alpha1.GuardrailLimits{
			MaxScaledDownTargets: ptr.To(intstr.FromString("100%")),
		}}}
		Expect(h.Client.Create(ctx, cap)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, cap)).To(Succeed()) })
		for s, leases := range map[*shoot]v1alpha1.NodeLeases{
			&most: {}, &nearlyAll: {FailureFraction: ptr.To(0.9)}, &many: {MinCandidates: ptr.To[int32](100)}, &unlisted: {},
		} {
			*s = newShoot(ctx)
			s.deploy(ctx, "kcm", 2)
			if s == &unlisted {
				s.put(ctx, "external", stranger(ctx, c, s.external.Addr()))
			}
			pc := s.prober("prober", dependent("kcm", 0, 0))
			leases.MonitorGraceDuration = "28s"
			pc.Spec.NodeLeases = &leases
			Expect(h.Client.Create(ctx, pc)).To(Succeed())
			Eventually(s.condition).WithContext(ctx).WithArguments(v1alpha1.ConditionExternalHealthy).Should(Equal(metav1.ConditionTrue))
			closeBreaker(ctx, pc)
		}
	}, NodeTimeout(specTime))

	replicas := func(s *shoot) func(context.Context) (map[string]int32, error) {
		return func(ctx context.Context) (map[string]int32, error) { return s.replicas(ctx) }
	}
	seen := func(s *shoot) func(context.Context) (v1alpha1.NodeLeasesState, error) {
		return func(ctx context.Context) (v1alpha1.NodeLeasesState, error) {
			pc := s.prober("prober")
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			return ptr.Deref(pc.Status.NodeLeases, v1alpha1.NodeLeasesState{}), err
		}
	}

	It("that can't be listed are told, with what to do, and the external probe decides alone", func(ctx SpecContext) {
		var c *metav1.Condition
		Eventually(func(ctx context.Context) (*metav1.Condition, error) {
			pc := unlisted.prober("prober")
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pc), pc)
			c = meta.FindStatusCondition(pc.Status.Conditions, "LeasesUnreadable")
			return c, err
		}).WithContext(ctx).ShouldNot(BeNil())
		Expect(c.Reason).To(Equal("Forbidden"))
		Expect(c.Message).To(ContainSubstring("Let the user of the kubeconfig in Secret external list nodes, and leases in the namespace kube-node-lease."))
		cut(unlisted.external)
		Eventually(replicas(&unlisted)).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0}))
		mend(unlisted.external)
	}, SpecTimeout(specTime))

	It("that so many nodes as it takes don't renew are a failure, wrong clocks and new nodes apart", func(ctx SpecContext) {
		Expect(most.scalings(ctx)).To(BeEmpty())
		for i := range 6 {
			nodes.lose(ctx, fmt.Sprintf("lost-%d", i))
		}
		lost := time.Now()
		Eventually(replicas(&most)).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 0}))
		Expect(time.Since(lost)).To(BeNumerically(">=", 12*time.Second), "an old time proves nothing before it was seen not to change")
		Eventually(seen(&most)).WithContext(ctx).Should(Equal(v1alpha1.NodeLeasesState{Candidates: 9, Expired: 6, Skewed: 2}))
		for _, s := range []shoot{nearlyAll, many} {
			Expect(s.scalings(ctx)).To(BeEmpty())
		}
	}, SpecTimeout(specTime))

	It("of one candidate say nothing, and what was taken is given back", func(ctx SpecContext) {
		for i := range 6 {
			nodes.remove(ctx, fmt.Sprintf("lost-%d", i))
		}
		nodes.remove(ctx, "ahead", "behind")
		Eventually(replicas(&most)).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 2}))
		Eventually(replicas(&unlisted)).WithContext(ctx).Should(Equal(map[string]int32{"kcm": 2}), "also where they can't be listed")
		Expect(seen(&most)(ctx)).To(Equal(v1alpha1.NodeLeasesState{Candidates: 1}))
	}, SpecTimeout(specTime))

	It("that no node ever renewed say nothing", func(ctx SpecContext) {
		nodes.remove(ctx, "steady")
		Expect(update(ctx, most.prober("prober"), func(spec *v1alpha1.ProbeConfigSpec) { // a new generation, whose status tells anew
			spec.NodeLeases.MinCandidates = ptr.To[int32](1)
		})).To(Succeed())
		Eventually(seen(&most)).WithContext(ctx).Should(Equal(v1alpha1.NodeLeasesState{}))
		Expect(most.scalings(ctx)).To(Equal([]string{"kcm 0", "kcm 2"}))
	}, SpecTimeout(specTime))
})
