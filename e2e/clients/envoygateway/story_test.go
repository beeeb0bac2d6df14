//go:build linux

package envoygateway

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// written is the name of what Autohealer writes for a Gateway named web.
const written = "autohealer.web"

// may lets Autohealer patch the site's Gateway: its owner by a label, an admin by a RoleBinding.
func (s *site) may(ctx context.Context) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "label", "gateway", "web", "-n", s.namespace, "autohealer.resourcestack.com/envoy-patches=true")
	Expect(err).NotTo(HaveOccurred())
	_, err = h.Kubectl(ctx, "create", "rolebinding", "autohealer-envoy-patches", "-n", s.namespace,
		"--clusterrole=autohealer-envoy-patches", "--serviceaccount="+harness.Namespace+":"+harness.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
}

// detect applies an OutlierPolicy for the site's Service.
func (s *site) detect(ctx context.Context, errors int) {
	GinkgoHelper()
	apply(ctx, fmt.Sprintf(`
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: web, namespace: %s}
spec:
  targetRefs: [{group: "", kind: Service, name: web}]
  outlierDetection: {consecutiveServerErrors: %d, maxEjectionPercent: 50, interval: 200ms, baseEjectionTime: 2s, maxEjectionTime: 2s}
`, s.namespace, errors))
}

// stands is how the OutlierPolicy stands with the site's Gateway: a condition's status, reason and message.
func (s *site) stands(ctx context.Context, conditionType string) func() (string, error) {
	return func() (string, error) {
		var op v1alpha1.OutlierPolicy
		err := h.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "web"}, &op)
		for _, a := range op.Status.Ancestors {
			if c := meta.FindStatusCondition(a.Conditions, conditionType); a.AncestorRef.Kind == "Gateway" && c != nil {
				return string(c.Status) + " " + c.Reason + " " + c.Message, nil
			}
		}
		return "", err
	}
}

func (s *site) delete(ctx context.Context, kind string, flags ...string) {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, append([]string{"delete", kind, "web", "-n", s.namespace}, flags...)...)
	Expect(err).NotTo(HaveOccurred())
}

// unwritten says whether Autohealer's EnvoyPatchPolicy isn't there.
func (s *site) unwritten(ctx context.Context) func() bool {
	return func() bool {
		_, err := patchPolicy(ctx, s.namespace, written)
		return apierrors.IsNotFound(err)
	}
}

var _ = Describe("An OutlierPolicy beside Envoy Gateway", func() {
	threshold := func(e *envoy.Envoy, cluster string) func() int { return func() int { return e.Threshold(cluster) } }

	It("has a failing backend ejected, follows routes and other policies, and is undone", func(ctx SpecContext) {
		s := newSite(ctx, "story", 3)
		e := s.proxy(ctx)
		Eventually(s.answers(e)).Should(BeTrue())

		By("writing nothing before owner and admin let it")
		s.detect(ctx, 3)
		Consistently(s.unwritten(ctx)).Should(BeTrue())
		s.may(ctx)
		Eventually(ctx, verdict(ctx, s.namespace, written, "Programmed")).Should(Equal("True Programmed"))
		Eventually(threshold(e, s.cluster())).Should(Equal(3))
		Eventually(s.stands(ctx, "Programmed")).Should(HavePrefix("True Programmed"))

		By("ejecting the backend that fails, and taking it back")
		s.backends[1].Answer(500)
		ejected := func() []string { e.Get(s.listener()); return e.Ejected(s.cluster()) }
		Eventually(ejected).Should(ConsistOf(s.backends[1].Address))
		s.backends[1].Answer(200)
		Eventually(ejected).Should(BeEmpty())

		By("following what changes")
		latencies := map[string]time.Duration{}
		measure := func(what string, change func(), cluster string, want int) {
			GinkgoHelper()
			began := time.Now()
			change()
			Eventually(threshold(e, cluster)).WithTimeout(2 * harness.Within).WithPolling(time.Millisecond).Should(Equal(want)) // where a cluster changes twice it waits twice
			latencies[what] = time.Since(began).Round(time.Millisecond)
		}
		measure("a policy's edit", func() { s.detect(ctx, 4) }, s.cluster(), 4)
		second := "httproute/" + s.namespace + "/web/rule/1"
		measure("a route's new rule", func() {
			route := `[{"op": "add", "path": "/spec/rules/-", "value": {"matches": [{"path": {"value": "/second"}}], "backendRefs": [{"name": "web", "port": 80}]}}]`
			_, err := h.Kubectl(ctx, "patch", "httproute", "web", "-n", s.namespace, "--type=json", "-p", route)
			Expect(err).NotTo(HaveOccurred())
		}, second, 4)
		measure("a BackendTrafficPolicy that decides", func() {
			apply(ctx, fmt.Sprintf(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: web, namespace: %s}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}]
  healthCheck: {passive: {consecutive5XxErrors: 9}}
`, s.namespace))
		}, s.cluster(), 9)
		Eventually(s.unwritten(ctx)).Should(BeTrue())
		Eventually(s.stands(ctx, "Accepted")).Should(HavePrefix("False Conflicted It holds for 0 of 2 clusters of the Gateway: BackendTrafficPolicy " + s.namespace + "/web says how"))
		measure("and that is deleted", func() { s.delete(ctx, "backendtrafficpolicy") }, s.cluster(), 4)
		measure("the policy is deleted", func() {
			s.delete(ctx, "outlierpolicy")
			Expect(s.unwritten(ctx)()).To(BeTrue(), "it is gone only once that is undone")
		}, s.cluster(), 0)
		AddReportEntry("from a kubectl that changes something until Envoy runs with it", latencies)
	}, NodeTimeout(6*harness.Within))

	It("is taken when Envoy Gateway comes back", func(ctx SpecContext) {
		s := newSite(ctx, "away", 2)
		s.may(ctx)
		s.detect(ctx, 3)
		e := s.proxy(ctx)
		Eventually(threshold(e, s.cluster())).Should(Equal(3))
		Expect(h.StopComponent(program)).To(Succeed())
		s.detect(ctx, 4)
		Eventually(s.stands(ctx, "Programmed")).Should(HavePrefix("Unknown Pending Envoy Gateway has said nothing yet"))
		g.start(ctx, patches)
		Eventually(threshold(e, s.cluster())).Should(Equal(4))
		Eventually(s.stands(ctx, "Programmed")).Should(HavePrefix("True Programmed"))
	}, NodeTimeout(4*harness.Within))

	It("goes on while Autohealer is down, and is undone by the next manager", func(ctx SpecContext) {
		s := newSite(ctx, "down", 2)
		s.may(ctx)
		s.detect(ctx, 3)
		e := s.proxy(ctx)
		Eventually(threshold(e, s.cluster())).Should(Equal(3))
		before, err := patchPolicy(ctx, s.namespace, written)
		Expect(err).NotTo(HaveOccurred())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Consistently(threshold(e, s.cluster())).Should(Equal(3))
		Expect(h.StartManager(ctx)).To(Succeed())
		Consistently(func() (types.UID, error) {
			now, err := patchPolicy(ctx, s.namespace, written)
			Expect(now.GetGeneration()).To(Equal(before.GetGeneration()), "a restart writes nothing")
			return now.GetUID(), err
		}).Should(Equal(before.GetUID()))

		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		s.delete(ctx, "outlierpolicy", "--wait=false")
		Expect(h.StartManager(ctx)).To(Succeed())
		Eventually(threshold(e, s.cluster())).Should(BeZero())
		Eventually(s.unwritten(ctx)).Should(BeTrue())
		s.delete(ctx, "outlierpolicy", "--ignore-not-found")
	}, NodeTimeout(6*harness.Within))

	It("is undone when the Gateway's owner takes the label away", func(ctx SpecContext) {
		s := newSite(ctx, "owned", 1)
		s.may(ctx)
		s.detect(ctx, 3)
		Eventually(ctx, verdict(ctx, s.namespace, written, "Programmed")).Should(Equal("True Programmed"))
		_, err := h.Kubectl(ctx, "label", "gateway", "web", "-n", s.namespace, "autohealer.resourcestack.com/envoy-patches-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(s.unwritten(ctx)).Should(BeTrue())
	}, NodeTimeout(2*harness.Within))

	It("leaves an EnvoyPatchPolicy of that name alone that is somebody else's", func(ctx SpecContext) {
		s := newSite(ctx, "foreign", 1)
		apply(ctx, fmt.Sprintf(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: %s, namespace: %s}
spec: {targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: web}, type: JSONPatch}
`, written, s.namespace))
		foreign, err := patchPolicy(ctx, s.namespace, written)
		Expect(err).NotTo(HaveOccurred())
		s.may(ctx)
		s.detect(ctx, 3)
		Consistently(func() (int64, error) {
			now, err := patchPolicy(ctx, s.namespace, written)
			return now.GetGeneration(), client.IgnoreNotFound(err)
		}).Should(Equal(foreign.GetGeneration()))
	}, NodeTimeout(2*harness.Within))
})
