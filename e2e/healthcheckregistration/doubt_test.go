package healthcheckregistration

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var gadgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}

// conditionTypes are those that an object has.
func conditionTypes(o *unstructured.Unstructured) (types []string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		types = append(types, item.(map[string]any)["type"].(string))
	}
	return types
}

// unblinking watches the target w until the spec ends, when it must never have been without these conditions.
func unblinking(ctx context.Context, namespace string, types ...string) {
	GinkgoHelper()
	c, err := dynamic.NewForConfig(h.Config)
	Expect(err).NotTo(HaveOccurred())
	w, err := c.Resource(gadgets).Namespace(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=w"})
	Expect(err).NotTo(HaveOccurred())
	var done sync.WaitGroup
	var missing []string
	done.Go(func() {
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				continue
			}
			if has := conditionTypes(event.Object.(*unstructured.Unstructured)); !containsAll(has, types) {
				missing = append(missing, strings.Join(has, ",")+" at "+event.Object.(*unstructured.Unstructured).GetResourceVersion())
			}
		}
	})
	DeferCleanup(func() {
		w.Stop()
		done.Wait()
		Expect(missing).To(BeEmpty(), "what the target had at each change at which a condition was away")
	})
}

func plugin(ctx context.Context, args ...string) {
	GinkgoHelper()
	said, err := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), append(args, "--kubeconfig", h.Kubeconfig)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(said))
}

func containsAll(has, wanted []string) bool {
	for _, t := range wanted {
		if !strings.Contains(","+strings.Join(has, ",")+",", ","+t+",") {
			return false
		}
	}
	return true
}

var _ = Describe("what isn't known", func() {
	It("takes nothing off: at a start, and while everything is frozen", func(ctx SpecContext) {
		namespace := place(ctx)
		names := []string{"A", "B", "C", "D", "E", "F"}
		for _, name := range names {
			setPhase(ctx, namespace, strings.ToLower(name), "Up")
		}
		target := putTarget(ctx, gadget, namespace)
		for _, name := range names {
			register(ctx, namespace+"-"+strings.ToLower(name), about(gadget, namespace, "checks: ["+checkOf(name, strings.ToLower(name))+"]"))
		}
		has := func() []string { return conditionTypes(stored(ctx, gadget, namespace)) }
		Eventually(has).Should(ConsistOf(names))

		By("restarting the manager twice")
		ctxOfWatch, stop := context.WithCancel(ctx)
		defer stop()
		before := stored(ctx, gadget, namespace).GetResourceVersion()
		unblinking(ctxOfWatch, namespace, names...)
		for range 2 {
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed())
			Consistently(func() string { return stored(ctx, gadget, namespace).GetResourceVersion() }, 3*time.Second).Should(Equal(before))
		}

		By("freezing everything, and turning the target to another type")
		DeferCleanup(func(ctx SpecContext) { plugin(ctx, "thaw") }, NodeTimeout(specTime))
		plugin(ctx, "freeze")
		turn := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"type":"other"}}`))
		Expect(h.Client.Patch(ctx, target, turn)).To(Succeed())
		Consistently(has, 6*time.Second).Should(ConsistOf(names))
		stop()
		plugin(ctx, "thaw")
		Eventually(has).Should(BeEmpty(), "undo goes on")
	}, NodeTimeout(specTime))

	It("is a claim that others make of their own conditions, which stay, also when its registration goes", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		target := putTarget(ctx, worker, namespace)
		theirs := map[string]any{"type": "Theirs", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}
		target.Object["status"] = map[string]any{"conditions": []any{theirs}}
		Expect(h.Client.Status().Update(ctx, target)).To(Succeed())
		target.SetAnnotations(map[string]string{"autohealer.resourcestack.com/owned-conditions": "Theirs"})
		Expect(h.Client.Update(ctx, target)).To(Succeed())
		register(ctx, namespace, about(worker, namespace, "removeConditionTypes: [Theirs]\nchecks: ["+checkOf("Dialled", "dial")+"]"))
		Eventually(condition(ctx, worker, namespace, "Dialled")).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(func() string {
			return stored(ctx, worker, namespace).GetAnnotations()["autohealer.resourcestack.com/owned-conditions"]
		}).Should(Equal("Dialled"))
		unregister(ctx, namespace)
		list, _, _ := unstructured.NestedSlice(stored(ctx, worker, namespace).Object, "status", "conditions")
		Expect(list).To(ConsistOf(theirs))
	}, NodeTimeout(specTime))
})

var _ = Describe("a registration that reads more of its objects than those before", func() {
	It("is told all that it reads, of targets and of what it checks, and the others' conditions stay meanwhile", func(ctx SpecContext) {
		namespace := place(ctx)
		apply(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: dial}, data: {phase: Up, more: Good, unread: x}}", namespace)
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := condition(ctx, gadget, namespace, "Dialled")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
		watching, stop := context.WithCancel(ctx)
		defer stop()
		unblinking(watching, namespace, "Dialled")
		before := dialled()

		register(ctx, namespace+"-2", about(gadget, namespace, `checks: [{name: more, conditionType: More, when: "target.spec.pools == []", object: {apiVersion: v1, kind: ConfigMap, name: "'dial'"},
  evaluate: {cel: {healthy: "object.data.more == 'Good' && !has(object.data.less)", message: "object.data.more"}}}]`))
		more := condition(ctx, gadget, namespace, "More")
		Eventually(more).Should(is("True", "HealthCheckSuccessful", ""))
		Expect(dialled()).To(Equal(before))
		apply(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: dial}, data: {phase: Down, more: Bad}}", namespace)
		Eventually(more).Should(is("False", "HealthCheckUnsuccessful", "Bad$"))
		Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", "it is Down$"))
		stop()
	}, NodeTimeout(specTime))
})

var _ = Describe("a kind in two versions", func() {
	It("has conditions that its registrations of both decide together, and keeps them", func(ctx SpecContext) {
		_, definition, _ := strings.Cut(gardener.Definitions, "metadata: {name: gadgets.example.org}")
		definition, _, _ = strings.Cut(definition, "\n---")
		_, version, _ := strings.Cut(definition, "versions:\n")
		older := strings.NewReplacer("name: v1\n", "name: v1alpha1\n", "storage: true", "storage: false").Replace(version)
		both := strings.NewReplacer("Gadget", "Ware", "gadget", "ware").Replace("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: wares.example.org}" + definition + "\n" + older)
		apply(ctx, "%s", both)
		letRead(ctx, "gadgets", "wares")
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/wares.example.org")
		Expect(err).NotTo(HaveOccurred())
		ware := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Ware"}
		old := ware
		old.Version = "v1alpha1"
		namespace := place(ctx)
		setPhase(ctx, namespace, "one", "Up")
		setPhase(ctx, namespace, "two", "Up")
		putTarget(ctx, ware, namespace)
		register(ctx, namespace+"-1", about(old, namespace, "checks: ["+checkOf("Dialled", "one")+"]"))
		register(ctx, namespace+"-2", about(ware, namespace, "checks: ["+checkOf("Dialled", "two")+", "+checkOf("New", "one")+"]"))
		dialled := condition(ctx, ware, namespace, "Dialled")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", `^\(2/2\)`))
		Eventually(condition(ctx, ware, namespace, "New")).Should(is("True", "HealthCheckSuccessful", `^\(1/1\)`))
		settled := stored(ctx, ware, namespace).GetResourceVersion()
		Consistently(func() string { return stored(ctx, ware, namespace).GetResourceVersion() }, 6*time.Second).Should(Equal(settled), "they don't undo each other's")
		setPhase(ctx, namespace, "one", "Down")
		Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", namespace+"-1/one: it is Down"))
		unregister(ctx, namespace+"-2")
		Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", `^\(0/1\)`))
		Expect(condition(ctx, ware, namespace, "New")()).To(BeNil())
		unregister(ctx, namespace+"-1")
		Expect(dialled()).To(BeNil())
	}, NodeTimeout(specTime))
})

var _ = Describe("a second writer of the same status", func() {
	for _, of := range []schema.GroupVersionKind{worker, gadget} {
		It("loses nothing on a "+of.Kind+", and keeps Autohealer from nothing", func(ctx SpecContext) {
			namespace := place(ctx)
			setPhase(ctx, namespace, "dial", "Up")
			setPhase(ctx, namespace, "late", "Up")
			putTarget(ctx, of, namespace)
			stop := make(chan struct{})
			var hammering sync.WaitGroup
			wrote := 0
			// Forty writes a second are more than any controller makes. One without a pause may be faster than a busy machine's manager can
			// read and apply, for as long as it likes.
			writes := time.NewTicker(25 * time.Millisecond)
			DeferCleanup(writes.Stop)
			hammering.Go(func() {
				defer GinkgoRecover()
				for {
					select {
					case <-stop:
						return
					case <-writes.C:
					}
					if bump(ctx, of, namespace, wrote) {
						wrote++
					}
				}
			})
			register(ctx, namespace, about(of, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
			dialled := condition(ctx, of, namespace, "Dialled")
			for range 4 {
				Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))
				setPhase(ctx, namespace, "dial", "Down")
				Eventually(dialled).Should(is("False", "HealthCheckUnsuccessful", ""))
				setPhase(ctx, namespace, "dial", "Up")
			}
			register(ctx, namespace+"-late", about(of, namespace, "checks: ["+checkOf("Late", "late")+"]"))
			Eventually(condition(ctx, of, namespace, "Late")).Should(is("True", "HealthCheckSuccessful", ""))
			unregister(ctx, namespace+"-late")
			close(stop)
			hammering.Wait()
			Expect(wrote).To(BeNumerically(">", 50))
			Expect(condition(ctx, of, namespace, "Theirs")()).To(HaveKeyWithValue("message", strconv.Itoa(wrote)), "each write counts from what is stored")
		}, NodeTimeout(specTime))
	}
})

// bump adds one to the count in a condition of the second writer's, which must be what that writer left there.
func bump(ctx context.Context, kind schema.GroupVersionKind, namespace string, wrote int) bool {
	o := stored(ctx, kind, namespace)
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	count := -1
	for _, item := range list {
		if entry := item.(map[string]any); entry["type"] == "Theirs" {
			count, _ = strconv.Atoi(entry["message"].(string))
			entry["message"] = strconv.Itoa(count + 1)
		}
	}
	if count < 0 {
		Expect(wrote).To(BeZero(), "their condition was lost")
		entry := map[string]any{"type": "Theirs", "status": "True", "reason": "R", "message": "1", "lastTransitionTime": "2026-01-01T00:00:00Z"}
		if kind == worker {
			entry["lastUpdateTime"] = "2026-01-01T00:00:00Z"
		}
		list = append(list, entry)
	} else {
		Expect(count).To(Equal(wrote), "a write of theirs was lost")
	}
	Expect(unstructured.SetNestedSlice(o.Object, list, "status", "conditions")).To(Succeed())
	err := h.Client.Status().Update(ctx, o)
	Expect(client.IgnoreNotFound(err)).To(Or(Succeed(), Satisfy(apierrors.IsConflict)))
	return err == nil
}
