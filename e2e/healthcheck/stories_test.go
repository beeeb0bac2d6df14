package healthcheck

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// touch makes the target's checks run now.
func touch(ctx context.Context, target *unstructured.Unstructured) {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now().String()))
	Expect(seedClient.Patch(ctx, target.DeepCopy(), patch)).To(Succeed())
}

var _ = Describe("a condition over time", func() {
	It("reaches all four statuses, and Progressing turns False in time across an Unknown and a restart", func(ctx SpecContext) {
		namespace := place(ctx)
		target := putWorker(ctx, namespace)
		check := newDial("True")
		begin := func() *program {
			return run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(time.Hour)).Check("EveryNodeReady", "dial", check.new))
		}
		turn := func(to string) { check.status.Store(to); touch(ctx, target) }
		p := begin()
		c := condition(ctx, worker, namespace, "EveryNodeReady")
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))
		turn("False")
		Eventually(c).Should(SatisfyAll(is("False", "HealthCheckUnsuccessful", "dialled"), HaveKeyWithValue("codes", ConsistOf("ERR_DIAL"))))
		turn("Error")
		Eventually(c).Should(is("Unknown", "ConditionCheckError", "no answer"))
		turn("True")
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))

		check.threshold.Store(int64(12 * time.Second))
		began := time.Now()
		turn("Progressing")
		Eventually(c).Should(is("Progressing", "HealthCheckProgressing", "^Progressing since .*Z: "))
		turn("Error")
		Eventually(c).Should(is("Unknown", "ConditionCheckError", "^Progressing since .*Z, then unknown: "))
		p.stop()
		check.status.Store("Progressing")
		begin()
		Eventually(c).Should(is("Progressing", "HealthCheckProgressing", ""))
		Eventually(c).Should(is("False", "HealthCheckUnsuccessful", ""))
		Expect(time.Since(began)).To(BeNumerically("~", 13500*time.Millisecond, 1500*time.Millisecond), "threshold, and what storing in whole seconds and reading take")
		turn("Progressing")
		Consistently(c, time.Second).Should(HaveKeyWithValue("status", "False"))
	}, NodeTimeout(2*time.Minute))

	It("is Unknown when its own check panics or hangs, and another condition isn't late", func(ctx SpecContext) {
		namespace := place(ctx)
		target := putWorker(ctx, namespace)
		panics, hangs, fine := newDial("Panic"), newDial("Hang"), newDial("True")
		run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(10*time.Second), healthcheck.WithCheckTimeout(5*time.Second)).
			Check("Panics", "dial", panics.new).Check("Hangs", "dial", hangs.new).Check("Fine", "dial", fine.new))
		Eventually(condition(ctx, worker, namespace, "Fine"), 4*time.Second).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(condition(ctx, worker, namespace, "Panics")).Should(is("Unknown", "ConditionCheckError", "the check panicked"))
		Eventually(condition(ctx, worker, namespace, "Hangs")).Should(is("Unknown", "ConditionCheckError", "gave no result within 5s"))
		fine.status.Store("False")
		panics.status.Store("True")
		touch(ctx, target)
		Eventually(condition(ctx, worker, namespace, "Fine")).Should(is("False", "HealthCheckUnsuccessful", ""))
		Eventually(condition(ctx, worker, namespace, "Panics")).Should(is("True", "HealthCheckSuccessful", ""))
		Expect(condition(ctx, worker, namespace, "Hangs")()).To(is("Unknown", "ConditionCheckError", ""))
	}, NodeTimeout(time.Minute))

	It("has the shape of metav1.Condition in a map by type, and what checks wrote of types that are no more is removed", func(ctx SpecContext) {
		namespace := place(ctx)
		target := put(ctx, seedClient, namespace, `
apiVersion: example.org/v1
kind: Gadget
metadata: {name: w}
spec: {type: %s}
status: {conditions: [{type: Old, status: "True", reason: HealthCheckSuccessful, message: (1/1) Health checks successful, lastTransitionTime: "2026-01-01T00:00:00Z"},
  {type: Theirs, status: "True", reason: R, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}, {type: Kept, status: "True", reason: R, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, namespace)
		check := newDial("Progressing")
		run(healthcheck.For(gadget, healthcheck.WithType(namespace), healthcheck.WithMetaConditions(), healthcheck.WithoutConditions("Old", "Theirs")).
			Check("Working", "dial", check.new))
		c := condition(ctx, gadget, namespace, "Working")
		Eventually(c).Should(SatisfyAll(is("Unknown", "HealthCheckProgressing", `^Not seen healthy yet\. Progressing since `), HaveKeyWithValue("observedGeneration", BeEquivalentTo(1))))
		check.status.Store("True")
		touch(ctx, target)
		Eventually(c).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(condition(ctx, gadget, namespace, "Old")).Should(BeNil())
		for _, others := range []string{"Theirs", "Kept"} {
			Expect(condition(ctx, gadget, namespace, others)()).To(HaveKeyWithValue("lastTransitionTime", "2026-01-01T00:00:00Z"))
		}
	}, NodeTimeout(time.Minute))
})

var _ = Describe("others", func() {
	It("write conditions of the same target all the time, and none of theirs is ever lost", func(ctx SpecContext) {
		namespace := place(ctx)
		target := putWorker(ctx, namespace)
		check := newDial("True")
		run(healthcheck.For(worker, healthcheck.WithType(namespace), healthcheck.WithSyncPeriod(time.Hour)).Check("EveryNodeReady", "dial", check.new))
		var done sync.WaitGroup
		const writers, rounds = 3, 60
		for w := range writers {
			done.Go(func() {
				defer GinkgoRecover()
				for i := range rounds {
					writeTheirs(ctx, namespace, fmt.Sprint("Theirs-", w), fmt.Sprint(i))
				}
			})
		}
		for i := range 40 {
			check.status.Store([]string{"False", "True", "Error"}[i%3])
			touch(ctx, target)
			Eventually(condition(ctx, worker, namespace, "EveryNodeReady")).Should(HaveKeyWithValue("status", []string{"False", "True", "Unknown"}[i%3]))
		}
		done.Wait()
		for w := range writers {
			Expect(condition(ctx, worker, namespace, fmt.Sprint("Theirs-", w))()).To(HaveKeyWithValue("message", fmt.Sprint(rounds-1)))
		}
		list, _, _ := unstructured.NestedSlice(stored(ctx, worker, namespace).Object, "status", "conditions")
		Expect(list).To(HaveLen(writers+1), "no type is there twice")
	}, NodeTimeout(3*time.Minute))
})

// untilItFits: everybody here writes the same object.
var untilItFits = wait.Backoff{Steps: 1000, Duration: time.Millisecond, Factor: 1.1, Jitter: 1, Cap: 50 * time.Millisecond}

// writeTheirs writes a condition as controllers do, by an update of the status as it was read; between two of its own writes it
// asserts that nobody changed it.
func writeTheirs(ctx context.Context, namespace, conditionType, message string) {
	Expect(retry.RetryOnConflict(untilItFits, func() error {
		target := stored(ctx, worker, namespace)
		list, _, _ := unstructured.NestedSlice(target.Object, "status", "conditions")
		entry := map[string]any{"type": conditionType, "status": "True", "reason": "R", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}
		kept := []any{entry}
		for _, item := range list {
			if item.(map[string]any)["type"] != conditionType {
				kept = append(kept, item)
			} else {
				Expect(item).To(HaveKeyWithValue("reason", "R"))
			}
		}
		Expect(unstructured.SetNestedSlice(target.Object, kept, "status", "conditions")).To(Succeed())
		return seedClient.Status().Update(ctx, target)
	})).To(Succeed())
}

var _ = Describe("two shoots", func() {
	It("are never judged with each other's client, also while their kubeconfigs are exchanged", func(ctx SpecContext) {
		identities := map[*cluster.Cluster]string{seed: "first", shoot: "second"}
		for c, is := range map[client.Client]string{seedClient: "first", shootClient: "second"} {
			identity := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "identity"}, Data: map[string]string{"is": is}}
			Expect(c.Create(ctx, identity)).To(Succeed())
		}
		var namespaces []string
		for i := range 10 {
			namespace := place(ctx)
			of := []*cluster.Cluster{seed, shoot}[i%2]
			putKubeconfig(ctx, namespace, of)
			put(ctx, seedClient, namespace, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: expected}\ndata: {is: %s}", identities[of])
			put(ctx, seedClient, namespace, "apiVersion: extensions.gardener.cloud/v1alpha1\nkind: Worker\nmetadata: {name: w}\nspec: {type: identity}")
			namespaces = append(namespaces, namespace)
		}
		run(healthcheck.For(worker, healthcheck.WithType("identity"), healthcheck.WithLoopbackShoots()).
			Check("Identity", "identity", func() healthcheck.HealthCheck { return &identity{} }))
		for _, namespace := range namespaces {
			Eventually(condition(ctx, worker, namespace, "Identity")).Should(is("True", "HealthCheckSuccessful", ""))
		}
		for range 20 {
			for _, namespace := range namespaces {
				touch(ctx, stored(ctx, worker, namespace))
			}
			for _, namespace := range namespaces {
				Expect(condition(ctx, worker, namespace, "Identity")()).To(is("True", "HealthCheckSuccessful", ""))
			}
		}
		By("moving a shoot to the other cluster")
		moved := namespaces[0]
		putKubeconfig(ctx, moved, shoot)
		Eventually(func() map[string]any {
			touch(ctx, stored(ctx, worker, moved))
			return condition(ctx, worker, moved, "Identity")()
		}).Should(is("False", "HealthCheckUnsuccessful", "another shoot"))
		Expect(condition(ctx, worker, namespaces[2], "Identity")()).To(is("True", "HealthCheckSuccessful", ""))
	}, NodeTimeout(2*time.Minute))
})
