package healthcheckregistration

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// progressingSince is when a condition's message says that its checks began to progress.
func progressingSince(entry map[string]any) time.Time {
	GinkgoHelper()
	said, _ := strings.CutPrefix(strings.TrimPrefix(entry["message"].(string), "Not seen healthy yet. "), "Progressing since ")
	since, err := time.Parse(time.RFC3339, said[:min(len(said), len("2006-01-02T15:04:05Z"))])
	Expect(err).NotTo(HaveOccurred(), "%s", entry["message"])
	return since
}

var _ = Describe("a condition that progresses", func() {
	It("turns from Progressing to False in time, across an Unknown and a restart", func(ctx SpecContext) {
		const timeout = 30 * time.Second
		check := strings.Replace(checkOf("Dialled", "dial"), "progressingTimeout: 8s", "progressingTimeout: "+timeout.String(), 1)
		kinds := map[schema.GroupVersionKind]string{worker: "Progressing", gadget: "Unknown"} // and what Progressing is there
		namespaces, began := map[schema.GroupVersionKind]string{}, map[schema.GroupVersionKind]time.Time{}
		for kind, progressing := range kinds {
			namespace := place(ctx)
			namespaces[kind] = namespace
			setPhase(ctx, namespace, "dial", "Starting")
			putTarget(ctx, kind, namespace)
			register(ctx, namespace, about(kind, namespace, "checks: ["+check+"]"))
			dialled := condition(ctx, kind, namespace, "Dialled")
			Eventually(dialled).Should(is(progressing, "HealthCheckProgressing", `^Not seen healthy yet. Progressing since `))
			began[kind] = progressingSince(dialled())
		}
		for kind := range kinds {
			apply(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: dial}, data: {other: x}}", namespaces[kind])
			dialled := condition(ctx, kind, namespaces[kind], "Dialled")
			Eventually(dialled).Should(is("Unknown", "ConditionCheckError", `^Not seen healthy yet. Progressing since .*, then unknown: .*there is no phase where the expression reads it`))
			Expect(progressingSince(dialled())).To(Equal(began[kind]))
		}

		By("being away until a time-out that began anew would end much later")
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		for kind := range kinds {
			setPhase(ctx, namespaces[kind], "dial", "Starting")
			Eventually(time.Now, timeout).Should(BeTemporally(">", began[kind].Add(timeout/2)))
		}
		Expect(h.StartManager(ctx)).To(Succeed())
		for kind := range kinds {
			var last map[string]any
			Eventually(func() map[string]any {
				last = condition(ctx, kind, namespaces[kind], "Dialled")()
				if last["status"] != "False" {
					Expect(progressingSince(last)).To(Equal(began[kind]), "it began when it did")
				}
				return last
			}, 2*timeout).Should(is("False", "HealthCheckUnsuccessful", "progressing for too long"))
			turned, err := time.Parse(time.RFC3339, last["lastTransitionTime"].(string))
			Expect(err).NotTo(HaveOccurred())
			Expect(turned).To(And(BeTemporally(">=", began[kind].Add(timeout)), BeTemporally("<", began[kind].Add(timeout*3/2))))
		}
	}, NodeTimeout(2*specTime))
})
