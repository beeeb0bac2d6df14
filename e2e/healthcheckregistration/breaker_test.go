package healthcheckregistration

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// ownDeployment is a check of a Deployment with the target's name.
const ownDeployment = "checks: [{name: d, conditionType: Dialled, object: {apiVersion: apps/v1, kind: Deployment, name: target.metadata.name}, evaluate: {builtin: {}}}]"

// deploy creates Deployments that want no pods, and so are available at once, by one apply.
func deploy(ctx context.Context, namespace string, names ...string) {
	GinkgoHelper()
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(&all, "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: %[1]s, name: %[2]s}, spec: {replicas: 0, selector: {matchLabels: {app: %[2]s}}, template: {%[3]s}}}\n",
			namespace, name, pods(namespace, name, false))
	}
	apply(ctx, "%s", all.String())
}

var _ = Describe("the breaker", func() {
	It("counts no target that is new: what was never True turns nothing False, and real failures are told", func(ctx SpecContext) {
		namespace := place(ctx)
		deploy(ctx, namespace, "w", "w0")
		target := "---\n{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: %[1]s, name: %[2]s}, spec: {type: %[1]s}}\n"
		apply(ctx, target+"%[3]s", namespace, "w", fmt.Sprintf(target, namespace, "w0"))
		register(ctx, namespace, about(gadget, namespace, ownDeployment))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(map[string]int{isTrue: 2}))
		stop := never(ctx, namespace, inDoubt)

		By("creating four by one apply, and what they are about later")
		var new strings.Builder
		for i := 1; i <= 4; i++ {
			fmt.Fprintf(&new, target, namespace, fmt.Sprint("w", i))
		}
		apply(ctx, "%s", new.String())
		Eventually(dialled).Should(Equal(map[string]int{isTrue: 2, isFalse: 4}))
		deploy(ctx, namespace, "w1", "w2", "w3", "w4")
		Eventually(dialled).Should(Equal(map[string]int{isTrue: 6}))

		By("deleting a Deployment that was there")
		_, err := h.Kubectl(ctx, "delete", "deployment", "-n", namespace, "w")
		Expect(err).NotTo(HaveOccurred())
		Eventually(dialled).Should(Equal(map[string]int{isTrue: 5, isFalse: 1}))
		Expect(statusOf(ctx, namespace, "BreakerOpen")()).To(BeEmpty())
		stop()
	}, NodeTimeout(specTime))

	It("closes by itself once what it held back is True again, also for a manager that didn't see it open", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled, breaker := statusesOf(ctx, namespace, "Dialled"), statusOf(ctx, namespace, "BreakerOpen")
		for _, between := range []func(){func() {}, func() { restartManager(ctx) }} {
			Eventually(dialled, time.Minute).Should(Equal(all(isTrue)))
			setPhase(ctx, namespace, "dial", "Down")
			Eventually(breaker).Should(HavePrefix("True TooManyTurnFalse: "))
			Eventually(dialled).Should(HaveKey(inDoubt))
			between()
			Consistently(breaker, 3*time.Second).Should(HavePrefix("True TooManyTurnFalse: "), "while anything is in doubt")
			setPhase(ctx, namespace, "dial", "Up")
			Eventually(breaker, time.Minute).Should(BeEmpty())
		}
		Eventually(dialled).Should(Equal(all(isTrue)))
	}, NodeTimeout(2*specTime))

	It("counts on when a target is deleted, and when its registration is made anew", func(ctx SpecContext) {
		namespace := place(ctx)
		deploy(ctx, namespace, "w", "w1", "w2", "w3", "w4", "w5")
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, ownDeployment))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isTrue)))
		remove := func(what ...string) {
			GinkgoHelper()
			_, err := h.Kubectl(ctx, append([]string{"delete", "-n", namespace}, what...)...)
			Expect(err).NotTo(HaveOccurred())
		}
		remove("deployment", "w1", "w2")
		Eventually(dialled).Should(Equal(map[string]int{isTrue: targetsOfOutage - 2, isFalse: 2}))
		remove("gadget", "w1")
		unregister(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, ownDeployment))
		Eventually(dialled).Should(Equal(map[string]int{isTrue: targetsOfOutage - 2, isFalse: 1}))

		remove("deployment", "w3")
		Eventually(dialled).Should(Equal(map[string]int{isTrue: targetsOfOutage - 3, isFalse: 1, inDoubt: 1}))
	}, NodeTimeout(specTime))
})
