package outlierpolicy

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A pause", Serial, func() {
	It("keeps Envoy as it is, and the policy says so", func(ctx SpecContext) {
		s := serve(ctx, "pausing", 1)
		s.detect(ctx, "consecutiveServerErrors: 41, maxEjectionPercent: 50")
		e := proxy(ctx, edge, clients, s.cluster())
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(41))
		stop := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "outage"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}
		Expect(h.Client.Create(ctx, stop)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(h.Client.Delete(ctx, stop))).To(Succeed()) })
		Eventually(func() string {
			op, err := policyOf(ctx, s.namespace, "web")
			return fmt.Sprint(err, op.Status.Conditions)
		}).Should(ContainSubstring("Guardrail outage"))

		s.detect(ctx, "consecutiveServerErrors: 42, maxEjectionPercent: 50")
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("False Paused"))
		Expect(e.Threshold(s.cluster())).To(Equal(41))

		Expect(h.Client.Delete(ctx, stop)).To(Succeed())
		Eventually(e.Threshold).WithArguments(s.cluster()).Should(Equal(42))
		Eventually(condition(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
	}, NodeTimeout(4*harness.Within))
})

var _ = Describe("Services of which many are gone at once", Serial, func() {
	It("stay in Envoy for now, which their namespace's policy tells, until they are back", func(ctx SpecContext) {
		const crowd = 12
		serve(ctx, "crowd", 1)
		for i := range crowd {
			apply(ctx, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%02d, namespace: crowd}, spec: {ports: [{port: 80}]}}", i))
		}
		apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: default, namespace: crowd}
spec: {outlierDetection: {consecutiveServerErrors: 51, maxEjectionPercent: 50}}
`)
		envoys := map[string]*envoy.Envoy{
			"delta": proxy(ctx, edge, clients), "the state of the world": proxyChanged(ctx, envoy.Listener{Name: "web", Cluster: "crowd/web/80"}, wholeState),
		}
		before := map[string]envoy.Churn{}
		for protocol, e := range envoys {
			Eventually(e.Threshold).WithArguments("crowd/s11/80").Should(Equal(51), protocol)
			before[protocol] = e.Churn()
		}

		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(h.Client.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace("crowd"))).To(Succeed())
		Expect(h.StartManager(ctx)).To(Succeed())
		held := func() string {
			op, err := policyOf(ctx, "crowd", "default")
			if err != nil {
				return err.Error()
			}
			for _, c := range op.Status.Conditions {
				if c.Type == "ClusterRemovalDelayed" {
					return c.Reason + ": " + c.Message
				}
			}
			return "not held"
		}
		Eventually(held).Should(MatchRegexp(`^TooManyRemovals: Envoys keep 13 clusters whose Services or routes are gone, because more than a tenth of all would go at once: ` +
			`crowd/s00/80, .*\. From 2.*Z on a tenth goes each minute\. A Guardrail with frozen: true keeps them\.$`))
		for protocol, e := range envoys {
			Eventually(func() int64 { return e.Stat("control_plane.connected_state") }).Should(BeEquivalentTo(1), protocol)
			Expect(e.Churn()).To(Equal(before[protocol]), protocol)
			Expect(e.Threshold("crowd/s00/80")).To(Equal(51), protocol)
		}

		for i := range crowd {
			apply(ctx, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%02d, namespace: crowd}, spec: {ports: [{port: 80}]}}", i))
		}
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: crowd}, spec: {ports: [{name: http, port: 80}]}}")
		Eventually(held).Should(Equal("not held"))
		apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: default, namespace: crowd}
spec: {outlierDetection: {consecutiveServerErrors: 52, maxEjectionPercent: 50}}
`)
		for protocol, e := range envoys {
			Eventually(e.Threshold, 2*harness.Within).WithArguments("crowd/s11/80").Should(Equal(52), protocol)
		}
	}, NodeTimeout(4*harness.Within))
})
