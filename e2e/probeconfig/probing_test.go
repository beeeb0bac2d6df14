package probeconfig

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/probing"
)

// runs keeps what a Prober told last, and lets it run again in a second.
type runs struct {
	mu   sync.Mutex
	last probe.Run
}

func (r *runs) Observe(_ probing.Key, run probe.Run) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = run
	return run.Started.Add(time.Second)
}

func (r *runs) latest() probe.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// classes are those of the latest run; that of a probe that didn't run is "".
func (r *runs) classes() [2]probe.Class {
	run := r.latest()
	classes := [2]probe.Class{run.Internal.Class}
	if run.External != nil {
		classes[1] = run.External.Class
	}
	return classes
}

var _ = Describe("the Prober, at a real API server", func() {
	var (
		internal, external *faultproxy.Proxy
		prober             *probing.Prober
		found              *runs
		versions           int
	)
	// set gives the Prober kubeconfigs that are new to it.
	set := func(in, out []byte) error {
		versions++
		secret := func(text []byte) []byte {
			return fmt.Appendf(text, "\n# %d", versions)
		}
		return prober.Set(probing.Key{Namespace: "a"}, probing.Target{
			Internal: secret(in), External: secret(out), Timeout: 500 * time.Millisecond, NodeLeases: &probe.LeaseSettings{},
		}, time.Now())
	}
	BeforeEach(func() {
		internal, external, found = newProxy(), newProxy(), &runs{}
		prober = (&probing.Prober{Handler: found, Policy: kubeconfig.Policy{AllowLoopback: true}, RedialEvery: 1000}).Init()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- prober.Start(ctx) }()
		DeferCleanup(func() {
			cancel()
			Expect(<-ended).To(Succeed())
		})
		Expect(set(kubeconfigOf(internal.Addr()), kubeconfigOf(external.Addr()))).To(Succeed())
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.OK, probe.OK}))
	})

	It("tells the two ways apart", func(SpecContext) {
		external.BreakNew(faultproxy.Reset)
		external.BreakOpen(faultproxy.Reset)
		Eventually(found.classes).Should(HaveExactElements(probe.OK, Or(Equal(probe.Connection), Equal(probe.Dial), Equal(probe.TLS))))
		internal.BreakNew(faultproxy.Swallow)
		internal.BreakOpen(faultproxy.Swallow)
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.Timeout, ""}), "the external probe isn't run")
		internal.BreakNew(faultproxy.None)
		external.BreakNew(faultproxy.None)
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.OK, probe.OK}))
	}, SpecTimeout(specTime))

	It("takes a slow network for a timeout, and a dead kept-alive connection for nothing", func(SpecContext) {
		external.Delay(400 * time.Millisecond)
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.OK, probe.Timeout}))
		external.Delay(0)
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.OK, probe.OK}))
		for _, dead := range []faultproxy.Fault{faultproxy.Reset, faultproxy.Swallow} { // with a word, and without one
			accepted := external.Accepted()
			external.BreakOpen(dead)
			Eventually(external.Accepted).Should(Equal(accepted+1), "it dialled anew")
			Consistently(found.classes, "2s").Should(Equal([2]probe.Class{probe.OK, probe.OK}), "and the server was there all the while")
		}
	}, SpecTimeout(specTime))

	It("counts nothing while credentials are rotated", func(SpecContext) {
		Expect(set(kubeconfigOf(internal.Addr(), withToken("expired")), kubeconfigOf(external.Addr()))).To(Succeed())
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.Unauthorized, ""}))
		Expect(found.latest().Internal.Result()).To(Equal(probe.Transient))
		Expect(set(kubeconfigOf(internal.Addr()), kubeconfigOf(external.Addr()))).To(Succeed())
		Eventually(found.classes).Should(Equal([2]probe.Class{probe.OK, probe.OK}))
	}, SpecTimeout(specTime))

	It("refuses a kubeconfig that is broken, and then probes nothing", func(SpecContext) {
		Expect(set([]byte("\t{"), kubeconfigOf(external.Addr()))).To(MatchError(kubeconfig.Malformed))
		last := found.latest().Started
		Consistently(func() time.Time { return found.latest().Started }, "2s").Should(BeTemporally("<=", last.Add(time.Second)))
	}, SpecTimeout(specTime))

	It("reads the leases of nodes, by the API server's clock", func(ctx SpecContext) {
		c, err := client.New(probed.Config, client.Options{Scheme: harness.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		renewed := metav1.NewMicroTime(time.Now().Add(-time.Minute).Truncate(time.Microsecond))
		for i := range 3 {
			name := fmt.Sprintf("leased-%d", i)
			Expect(c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
			lease := &coordinationv1.Lease{ObjectMeta: named(corev1.NamespaceNodeLease, name)}
			if i > 0 {
				lease.Spec.RenewTime = &renewed
			}
			Expect(c.Create(ctx, lease)).To(Succeed())
		}
		Expect(c.Create(ctx, &coordinationv1.Lease{ObjectMeta: named(corev1.NamespaceNodeLease, "of-no-node")})).To(Succeed())
		Eventually(func() []probe.NodeLease { return found.latest().Leases }).Should(HaveLen(3))
		run := found.latest()
		Expect(run.ServerTime).To(BeTemporally("~", time.Now(), 5*time.Second))
		for _, l := range run.Leases {
			if l.Node == "leased-0" {
				Expect(l.Renewed).To(BeZero())
			} else {
				Expect(l.Renewed).To(BeTemporally("==", renewed.Time))
			}
		}
	}, SpecTimeout(specTime))
})

func withToken(token string) func(*api.Config) {
	return func(c *api.Config) {
		for _, user := range c.AuthInfos {
			*user = api.AuthInfo{Token: token}
		}
	}
}
