package probeconfig

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
)

var _ = Describe("when the load balancer of all targets fails", Ordered, func() {
	var all []shoot
	// The witness is reached by a way of its own, which Autohealer's outage cuts, too.
	var balancer, witness *faultproxy.Proxy
	var rail *v1alpha1.Guardrail

	silent := func(ctx context.Context) (string, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(rail), rail)
		if c := meta.FindStatusCondition(rail.Status.Conditions, v1alpha1.ConditionWitnessSilent); c != nil {
			return c.Reason + ": " + c.Message, err
		}
		return "", err
	}
	// everywhere says what a condition of each config is: one value where it is the same.
	everywhere := func(conditionType string) func(context.Context) ([]metav1.ConditionStatus, error) {
		return func(ctx context.Context) (is []metav1.ConditionStatus, err error) {
			for _, s := range all {
				one, err := s.condition(ctx, conditionType)
				if err != nil {
					return nil, err
				}
				is = append(is, one)
			}
			return slices.Compact(is), nil
		}
	}
	// down is how many are scaled down.
	down := func(ctx context.Context) (n int, err error) {
		for _, s := range all {
			one, err := s.replicas(ctx)
			if err != nil {
				return 0, err
			}
			if one["kcm"] == 0 {
				n++
			}
		}
		return n, nil
	}
	told := func(ctx context.Context) (reasons []string, err error) {
		var events eventsv1.EventList
		err = h.Client.List(ctx, &events, client.InNamespace(all[0].namespace))
		for _, e := range events.Items {
			if e.Regarding.Kind == "ProbeConfig" && e.Action == v1alpha1.ConditionBreakerOpen {
				reasons = append(reasons, e.Reason)
			}
		}
		return reasons, err
	}

	BeforeAll(func(ctx SpecContext) {
		underOracle(ctx, nil)
		balancer, witness = newProxy(), newProxy()
		all = newShoots(ctx, 6)
		rail = &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "witness"}, Spec: v1alpha1.GuardrailSpec{
			Limits: &v1alpha1.GuardrailLimits{MaxScaledDownTargets: &noCap},
			Witnesses: []v1alpha1.Witness{{
				Name: "elsewhere", Address: witness.Addr(), CABundle: string(probed.CACert),
			}},
		}}
		cut(witness)
		Expect(h.Client.Create(ctx, rail)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, rail)).To(Succeed()) })
		atOnce(all, func(s shoot) {
			s.put(ctx, "external", kubeconfigOf(balancer.Addr()))
			s.deploy(ctx, "kcm", 1)
			Expect(h.Client.Create(ctx, s.prober("prober", dependent("kcm", 0, 0)))).To(Succeed())
		})
		Eventually(everywhere(v1alpha1.ConditionExternalHealthy)).WithContext(ctx).Should(HaveExactElements(metav1.ConditionTrue))
	}, NodeTimeout(specTime))

	It("no more than a few are scaled down while no witness answers, either, as in an outage of Autohealer's own", func(ctx SpecContext) {
		cut(balancer)
		Eventually(everywhere(v1alpha1.ConditionBreakerOpen)).WithContext(ctx).Should(HaveExactElements(metav1.ConditionTrue))
		Expect(all[0].says(ctx, v1alpha1.ConditionBreakerOpen)).To(And(HavePrefix("TooManyFailTogether: Too many targets turned unhealthy together at "),
			ContainSubstring("but of targets that witnesses vouch for. The breaker closes by itself once at most half as many targets as would open it have been unhealthy or unknown for a minute. The breaker is one for all ProbeConfigs, and only who runs Autohealer can reset it")))
		Eventually(silent).WithContext(ctx).Should(MatchRegexp(`^NoAnswer: The TLS handshake with 1 of 1 witness failed: elsewhere \(127\.0\.0\.1:\d+\): [A-Z].*` +
			`\. While none answers, nobody vouches for targets of ProbeConfigs that fail together, and the breaker holds them back\.$`))
		before, err := down(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(before).To(BeNumerically("<", 3), "those that were before the third turned")
		Consistently(down, "5s").WithContext(ctx).Should(Equal(before))
	}, SpecTimeout(specTime))

	It("and all that the cap allows are, without anybody's reset, once one answers", func(ctx SpecContext) {
		mend(witness)
		Eventually(down).WithContext(ctx).Should(Equal(6))
		Expect(all[0].condition(ctx, v1alpha1.ConditionBreakerOpen)).To(Or(Equal(metav1.ConditionTrue), BeEmpty()))
		Eventually(silent).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(specTime))

	It("and they come back, and the breaker closes by itself", func(ctx SpecContext) {
		mend(balancer)
		Eventually(down).WithContext(ctx).Should(BeZero())
		Eventually(everywhere(v1alpha1.ConditionBreakerOpen)).WithContext(ctx).Should(HaveExactElements(BeEmpty()))
		Eventually(told).WithContext(ctx).Should(ConsistOf("TooManyFailTogether", "BreakerClosed"))
	}, SpecTimeout(specTime))

	It("and the next time they are scaled down at once, and no breaker opens", func(ctx SpecContext) {
		cut(balancer)
		Eventually(down).WithContext(ctx).Should(Equal(6))
		Expect(everywhere(v1alpha1.ConditionBreakerOpen)(ctx)).To(HaveExactElements(BeEmpty()))
		mend(balancer)
		Eventually(down).WithContext(ctx).Should(BeZero())
		Expect(told(ctx)).To(ConsistOf("TooManyFailTogether", "BreakerClosed"))
	}, SpecTimeout(specTime))
})
