package healthcheckregistration

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// checkOf is a check of what a ConfigMap says.
func checkOf(conditionType, name string) string {
	return fmt.Sprintf(`{name: %[2]s, conditionType: %[1]s, progressingTimeout: 8s, object: {apiVersion: v1, kind: ConfigMap, name: "'%[2]s'"},
  evaluate: {cel: {healthy: object.data.phase == 'Up', progressing: object.data.phase == 'Starting', failed: object.data.phase == 'Down', message: "'it is ' + object.data.phase"}}}`, conditionType, name)
}

// putTarget creates a target w whose type is its namespace, so that other specs' registrations don't select it.
func putTarget(ctx context.Context, kind schema.GroupVersionKind, namespace string) *unstructured.Unstructured {
	GinkgoHelper()
	apiVersion, name := kind.ToAPIVersionAndKind()
	return put(ctx, namespace, "{apiVersion: %s, kind: %s, metadata: {name: w}, spec: {type: %s, pools: []}}", apiVersion, name, namespace)
}

// about is the spec of a registration about the target of a namespace.
func about(kind schema.GroupVersionKind, namespace, more string) string {
	apiVersion, name := kind.ToAPIVersionAndKind()
	return "target: {apiVersion: " + apiVersion + ", kind: " + name + ", type: " + namespace + "}\nsyncPeriod: 5s\n" + more
}

var _ = Describe("a condition over time", func() {
	for _, c := range []struct {
		of          schema.GroupVersionKind
		progressing string
	}{{worker, "Progressing"}, {gadget, "Unknown"}} {
		It("reaches each status on a "+c.of.Kind+"", func(ctx SpecContext) {
			namespace := place(ctx)
			turn := func(phase string) { setPhase(ctx, namespace, "dial", phase) }
			turn("Up")
			putTarget(ctx, c.of, namespace)
			register(ctx, namespace, about(c.of, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
			dialled := condition(ctx, c.of, namespace, "Dialled")
			Eventually(dialled).Should(is("True", "HealthCheckSuccessful", `^\(1/1\) Health checks successful$`))
			turn("Down")
			Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", `^\(0/1\) Health checks successful: 1\) dial: it is Down$`))
			setPhase(ctx, namespace, "dial", "Up")
			Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))

			turn("Starting")
			Eventually(dialled).Should(is(c.progressing, "HealthCheckProgressing", `^Progressing since `))
			turn("Up")
			Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
		}, NodeTimeout(specTime))
	}

	It("is decided by all registrations of its type together, and by those that are left", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "one", "Up")
		setPhase(ctx, namespace, "two", "Down")
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace+"-1", about(gadget, namespace, "checks: ["+checkOf("Dialled", "one")+"]"))
		register(ctx, namespace+"-2", about(gadget, namespace, "checks: ["+checkOf("Dialled", "two")+"]"))
		both := condition(ctx, gadget, namespace, "Dialled")
		Eventually(both).Should(is("False", "HealthCheckUnsuccessful", `^\(1/2\) Health checks successful: 1\) `+namespace+`-2/two: it is Down$`))
		unregister(ctx, namespace+"-2")
		Eventually(both).Should(is("True", "HealthCheckSuccessful", `^\(1/1\) Health checks successful$`))
		unregister(ctx, namespace+"-1")
		Eventually(both).Should(BeNil())
	}, NodeTimeout(specTime))

	It("stays as it is while its target is suspended, and is True where a check isn't asked", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		target := putTarget(ctx, worker, namespace)
		register(ctx, namespace, about(worker, namespace, "suspendWhen: target.metadata.?annotations[?'example.com/hibernated'].hasValue()\nshootKubeconfig: {secretName: gardener}\nchecks: ["+checkOf("Dialled", "dial")+
			", {name: nodes, conditionType: EveryNodeReady, when: size(target.spec.pools) > 0, evaluate: {nodes: {min: 1}}}]"))
		Eventually(condition(ctx, worker, namespace, "EveryNodeReady")).Should(is("True", "HealthCheckSuccessful", `^\(1/1\)`), "workerless")
		dialled := condition(ctx, worker, namespace, "Dialled")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
		hibernate := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/hibernated":"true"}}}`))
		Expect(h.Client.Patch(ctx, target, hibernate)).To(Succeed())
		before := stored(ctx, worker, namespace).GetResourceVersion()
		setPhase(ctx, namespace, "dial", "Down")
		Consistently(func() string { return stored(ctx, worker, namespace).GetResourceVersion() }, 7*time.Second).Should(Equal(before))
		wake := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/hibernated":null}}}`))
		Expect(h.Client.Patch(ctx, target, wake)).To(Succeed())
		Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", "it is Down"))
	}, NodeTimeout(specTime))

	It("comes and goes with the labels of its target's namespace", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTarget(ctx, gadget, namespace)
		spec := about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]")
		spec = strings.NewReplacer("syncPeriod: 5s", "syncPeriod: 1h", "progressingTimeout: 8s", "progressingTimeout: 2h").Replace(spec) // nothing but the label is the cause
		register(ctx, namespace, strings.Replace(spec, "type: ", "namespaceSelector: {matchLabels: {tenant: "+namespace+"}}, type: ", 1))
		Eventually(statusOf(ctx, namespace, "TargetsHealthy")).Should(HaveSuffix("0 of 0 targets are healthy."))
		label := func(value string) {
			_, err := h.Kubectl(ctx, "label", "namespace", namespace, "tenant"+value)
			Expect(err).NotTo(HaveOccurred())
		}
		label("=" + namespace)
		Eventually(condition(ctx, gadget, namespace, "Dialled")).Should(is("True", "HealthCheckSuccessful", ""))
		label("-")
		Eventually(condition(ctx, gadget, namespace, "Dialled")).Should(BeNil())
	}, NodeTimeout(specTime))

	It("is what onMissing says where there is no object", func(ctx SpecContext) {
		namespace := place(ctx)
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, `checks:
- {name: a, conditionType: Fails, object: {apiVersion: v1, kind: ConfigMap, name: "'nothing'"}, evaluate: {status: {}}}
- {name: b, conditionType: Waits, onMissing: Progressing, object: {apiVersion: v1, kind: ConfigMap, name: "'nothing'"}, evaluate: {status: {}}}
- {name: c, conditionType: Passes, onMissing: Skip, object: {apiVersion: v1, kind: ConfigMap, selector: {matchLabels: {no: body}}}, evaluate: {status: {}}}`))
		Eventually(condition(ctx, gadget, namespace, "Passes")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(condition(ctx, gadget, namespace, "Waits")).Should(is("Unknown", "HealthCheckProgressing", "doesn't exist"))
		Eventually(condition(ctx, gadget, namespace, "Fails")).Should(is("False", "HealthCheckUnsuccessful", `1\) a: ConfigMap `+namespace+`/nothing doesn't exist$`))
	}, NodeTimeout(specTime))
})

// edit changes one condition of a target, as somebody does who writes all of its status; one that is emptied is removed.
func edit(ctx context.Context, kind schema.GroupVersionKind, namespace, conditionType string, change func(entry map[string]any)) {
	GinkgoHelper()
	Eventually(func() error { // which others write, too
		target := stored(ctx, kind, namespace)
		status := target.Object["status"].(map[string]any)
		list := status["conditions"].([]any)
		i := slices.IndexFunc(list, func(item any) bool { return item.(map[string]any)["type"] == conditionType })
		if change(list[i].(map[string]any)); len(list[i].(map[string]any)) == 0 {
			status["conditions"] = slices.Delete(list, i, i+1)
		}
		return h.Client.Status().Update(ctx, target, client.FieldOwner("its-controller"))
	}).Should(Succeed())
}

var _ = Describe("what isn't Autohealer's", func() {
	for _, of := range []schema.GroupVersionKind{worker, gadget} {
		It("stays as it is on a "+of.Kind+": other conditions, and one that is there already", func(ctx SpecContext) {
			namespace := place(ctx)
			setPhase(ctx, namespace, "dial", "Down")
			apiVersion, kindName := of.ToAPIVersionAndKind()
			target := put(ctx, namespace, "{apiVersion: %s, kind: %s, metadata: {name: w}, spec: {type: not-yet}}", apiVersion, kindName)
			others := []any{}
			for _, kind := range []string{"Theirs", "Dialled"} {
				entry := map[string]any{"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
				if of == worker {
					entry["lastUpdateTime"] = "2026-01-01T00:00:00Z"
				}
				others = append(others, entry)
			}
			target.Object["status"] = map[string]any{"conditions": others}
			Expect(h.Client.Status().Update(ctx, target)).To(Succeed())
			register(ctx, namespace, about(of, namespace, "checks: ["+checkOf("Dialled", "dial")+", {name: other, conditionType: Other, object: {apiVersion: v1, kind: ConfigMap, name: \"'dial'\"}, evaluate: {status: {}}}]"))
			Expect(h.Client.Patch(ctx, target, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"type":"`+namespace+`"}}`)))).To(Succeed())
			Eventually(condition(ctx, of, namespace, "Other")).Should(is("True", "HealthCheckSuccessful", ""))
			Eventually(statusOf(ctx, namespace, "Ready")).Should(ContainSubstring("conditions of 1 target aren't written: condition Dialled is there already, and someone else's"))
			unregister(ctx, namespace)
			list, _, _ := unstructured.NestedSlice(stored(ctx, of, namespace).Object, "status", "conditions")
			Expect(list).To(ConsistOf(others...))
		}, NodeTimeout(specTime))
	}

	It("stays as somebody else writes it, and holds up no other condition of its target, until it is removed", func(ctx SpecContext) {
		namespace := place(ctx)
		for _, name := range []string{"edited", "other", "third"} {
			setPhase(ctx, namespace, name, "Up")
		}
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace+"-1", about(gadget, namespace, "checks: ["+checkOf("Edited", "edited")+", "+checkOf("Other", "other")+"]"))
		register(ctx, namespace+"-2", about(gadget, namespace, "checks: ["+checkOf("Third", "third")+"]"))
		for _, conditionType := range []string{"Edited", "Other", "Third"} {
			Eventually(condition(ctx, gadget, namespace, conditionType)).Should(is("True", "HealthCheckSuccessful", ""))
		}
		edited := condition(ctx, gadget, namespace, "Edited")
		edit(ctx, gadget, namespace, "Edited", func(entry map[string]any) {
			entry["status"], entry["reason"], entry["message"] = "False", "Mine", "as I say"
		})
		Eventually(statusOf(ctx, namespace+"-1", "Ready")).Should(ContainSubstring("condition Edited is there already, and someone else's"))
		setPhase(ctx, namespace, "other", "Down")
		Eventually(condition(ctx, gadget, namespace, "Other")).Should(is("False", "HealthCheckUnsuccessful", "it is Down"))
		unregister(ctx, namespace+"-2")
		Expect(condition(ctx, gadget, namespace, "Third")()).To(BeNil())
		Expect(edited()).To(is("False", "Mine", "as I say$"))

		edit(ctx, gadget, namespace, "Edited", func(entry map[string]any) { clear(entry) })
		Eventually(edited).Should(is("True", "HealthCheckSuccessful", `successful$`))
		Eventually(statusOf(ctx, namespace+"-1", "Ready")).ShouldNot(ContainSubstring("someone else"))
	}, NodeTimeout(specTime))

	for _, of := range []schema.GroupVersionKind{worker, gadget} {
		It("is put right on a "+of.Kind+" where a controller wrote back an older state of it, and removed whoever wrote it last", func(ctx SpecContext) {
			namespace := place(ctx)
			setPhase(ctx, namespace, "dial", "Up")
			putTarget(ctx, of, namespace)
			register(ctx, namespace, about(of, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
			dialled := condition(ctx, of, namespace, "Dialled")
			Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
			for range 2 {
				edit(ctx, of, namespace, "Dialled", func(entry map[string]any) {
					entry["status"], entry["reason"], entry["message"] = "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) dial: it was Down"
				})
				Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
			}
			setPhase(ctx, namespace, "dial", "Down")
			Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", "it is Down$"))
			edit(ctx, of, namespace, "Dialled", func(entry map[string]any) { entry["lastTransitionTime"] = "2026-01-01T00:00:00Z" })
			unregister(ctx, namespace)
			Expect(dialled()).To(BeNil())
		}, NodeTimeout(specTime))
	}

	It("is written once on a kind whose conditions have no observedGeneration", func(ctx SpecContext) {
		_, definition, _ := strings.Cut(gardener.Definitions, "metadata: {name: gadgets.example.org}")
		definition, _, _ = strings.Cut(definition, "---")
		definition = strings.Replace(definition, "observedGeneration: {type: integer, format: int64}", "", 1)
		names := strings.NewReplacer("gadget", "gizmo", "Gadget", "Gizmo")
		letRead(ctx, "gadgets", "gizmos")
		apply(ctx, "%s", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gizmos.example.org}"+names.Replace(definition))
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, "delete", "crd", "gizmos.example.org")
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(specTime))
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "gizmos.example.org")
		Expect(err).NotTo(HaveOccurred())
		gizmo := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gizmo"}
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTarget(ctx, gizmo, namespace)
		register(ctx, namespace, about(gizmo, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := condition(ctx, gizmo, namespace, "Dialled")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
		setPhase(ctx, namespace, "dial", "Down")
		Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", ""))
		setPhase(ctx, namespace, "dial", "Up")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
		version := stored(ctx, gizmo, namespace).GetResourceVersion()
		Consistently(func() string { return stored(ctx, gizmo, namespace).GetResourceVersion() }, 7*time.Second).Should(Equal(version))
	}, NodeTimeout(specTime))

	It("keeps a deleted registration no longer than it takes, though a target hangs in its own deletion", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		target := putTarget(ctx, gadget, namespace)
		finalize := func(ctx context.Context, finalizers string) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
			Expect(client.IgnoreNotFound(h.Client.Patch(ctx, target, patch))).To(Succeed())
		}
		finalize(ctx, `["example.org/machines"]`)
		DeferCleanup(func(ctx SpecContext) { finalize(ctx, "null") }, NodeTimeout(specTime))
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		Eventually(condition(ctx, gadget, namespace, "Dialled")).Should(is("True", "HealthCheckSuccessful", ""))
		Expect(h.Client.Delete(ctx, target)).To(Succeed())
		unregister(ctx, namespace)
		Expect(condition(ctx, gadget, namespace, "Dialled")()).To(is("True", "HealthCheckSuccessful", ""), "it goes with its target")
	}, NodeTimeout(specTime))

	It("isn't written in mode Observe, which tells what would be", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Down")
		before := putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, "mode: Observe\nchecks: ["+checkOf("Dialled", "dial")+"]"))
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Observing: Mode Observe, no condition is written: 0 of 1 targets are healthy, 1 isn't"))
		Expect(stored(ctx, gadget, namespace).GetResourceVersion()).To(Equal(before.GetResourceVersion()))
	}, NodeTimeout(specTime))
})

var _ = Describe("doubt", func() {
	It("opens the breaker when many targets turn False together: they are Unknown until a reset", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		for _, name := range []string{"w1", "w2", "w3", "w4", "w5", "w6"} {
			apply(ctx, "{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: %s, name: %s}, spec: {type: %s}}", namespace, name, namespace)
		}
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Operative: 6 of 6 targets are healthy"))
		setPhase(ctx, namespace, "dial", "Down")
		Eventually(statusOf(ctx, namespace, "BreakerOpen")).Should(HavePrefix("True TooManyTurnFalse: "))
		Eventually(func() (inDoubt int) {
			var all unstructured.UnstructuredList
			all.SetGroupVersionKind(gadget)
			Expect(h.Client.List(ctx, &all, client.InNamespace(namespace))).To(Succeed())
			for _, o := range all.Items {
				list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
				if len(list) == 1 && list[0].(map[string]any)["reason"] == "HealthCheckInDoubt" {
					inDoubt++
				}
			}
			return inDoubt
		}).Should(BeNumerically("==", 4))
		hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(hcr), hcr)).To(Succeed())
		reset := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"`+hcr.Status.Breaker.ID+`"}}}`))
		Expect(h.Client.Patch(ctx, hcr, reset)).To(Succeed())
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Operative: 0 of 6 targets are healthy, 6 aren't"), "what it held back is believed")
		Expect(statusOf(ctx, namespace, "BreakerOpen")()).To(BeEmpty())
		setPhase(ctx, namespace, "dial", "Up")
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Operative: 6 of 6 targets are healthy"))
	}, NodeTimeout(specTime))

	It("is judged at the next look once a kind is served that wasn't", func(ctx SpecContext) {
		letRead(ctx, "passings", "latecomers")
		namespace := place(ctx)
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, `checks:
- {name: late, conditionType: Late, object: {apiVersion: example.org/v1, kind: Latecomer, name: "'l'"}, evaluate: {cel: {healthy: object.spec.ok}}}`))
		late := condition(ctx, gadget, namespace, "Late")
		Eventually(late).Should(is("Unknown", "ConditionCheckError", "the kind isn't served"))
		apply(ctx, "%s", strings.NewReplacer("passing", "latecomer", "Passing", "Latecomer").Replace(gardener.Definitions[strings.LastIndex(gardener.Definitions, "---")+3:]))
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/latecomers.example.org")
		Expect(err).NotTo(HaveOccurred())
		put(ctx, namespace, "{apiVersion: example.org/v1, kind: Latecomer, metadata: {name: l}, spec: {ok: true}}")
		Eventually(late).WithTimeout(15*time.Second).Should(is("True", "HealthCheckSuccessful", ""), "within a period of 5s, and the 5s for which an answer is believed")
	}, NodeTimeout(specTime))

	It("is Unknown, not False, for a kind that may not be read or isn't served, and without a kubeconfig", func(ctx SpecContext) {
		namespace := place(ctx)
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, `shootKubeconfig: {secretName: gardener}
checks:
- {name: a, conditionType: Forbidden, object: {apiVersion: v1, kind: PersistentVolumeClaim, name: "'p'"}, evaluate: {builtin: {}}}
- {name: b, conditionType: Unserved, object: {apiVersion: nobody.example.org/v1, kind: Nothing, name: "'p'"}, evaluate: {status: {}}}
- {name: c, conditionType: Unreached, evaluate: {nodes: {min: 1}}}`))
		Eventually(condition(ctx, gadget, namespace, "Unserved")).Should(is("Unknown", "ConditionCheckError", "the kind isn't served"))
		Eventually(condition(ctx, gadget, namespace, "Unreached")).Should(is("Unknown", "ConditionCheckError", "read the shoot's kubeconfig"))
		Eventually(condition(ctx, gadget, namespace, "Forbidden")).Should(is("Unknown", "ConditionCheckError", "forbidden"))
	}, NodeTimeout(specTime))
})

var _ = Describe("kubectl autohealer undo", func() {
	It("takes conditions off by the record alone, while no manager runs", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := condition(ctx, gadget, namespace, "Dialled")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(h.StartManager(ctx)).To(Succeed()) }, NodeTimeout(specTime))
		said, err := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), "undo", "--all", "-n", namespace, "--kubeconfig", h.Kubeconfig).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(said))
		Expect(string(said)).To(And(ContainSubstring("gadget/w in namespace "+namespace), ContainSubstring("condition Dialled removed"), ContainSubstring("HealthCheckRegistration "+namespace+", where it selects it")))
		Expect(dialled()).To(BeNil())
		Expect(stored(ctx, gadget, namespace).GetAnnotations()).NotTo(HaveKey("autohealer.resourcestack.com/owned-conditions"))
	}, NodeTimeout(specTime))
})
