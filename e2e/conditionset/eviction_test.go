package conditionset

import (
	"bytes"
	"context"
	"encoding/json"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A set with NoExecute", func() {
	It("taints a sick node, whose intolerant pods the control plane evicts, and takes the taint back on recovery", func(ctx SpecContext) {
		key := w.Key("evict")
		node := w.AddNodesInOwnZones(ctx, 1, "evict")[0]
		intolerant, tolerant := addPod(ctx, "intolerant", node, ""), addPod(ctx, "tolerant", node, key)
		set := w.Create(ctx, fixture.NewSet("evict", key, evict, "EvictBroken"))
		history := w.Remember(ctx)

		w.Report(ctx, node, "EvictBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(evict))
		Eventually(exists(ctx, intolerant)).Should(BeFalse(), "the intolerant pod should be evicted")
		Expect(deletedBy(intolerant.Name)).To(ContainElement("system:kube-controller-manager"))
		Expect(exists(ctx, tolerant)()).To(BeTrue())

		w.Report(ctx, node, "EvictBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, node, key)).Should(BeEmpty())
		Expect(exists(ctx, tolerant)()).To(BeTrue(), "a pod that tolerates the key should stay")

		By("recording whose the taint is in the write that sets it, and no longer than it is there")
		for _, revision := range history.Of(ctx, node) {
			claim := fixture.ClaimOn(revision, key)
			Expect(claim != nil).To(Equal(fixture.EffectOn(revision, key) != none), "the record of version %s", revision.ResourceVersion)
			if claim != nil {
				Expect(claim.Set).To(Equal(set.UID))
			}
		}

		By("telling of it")
		Eventually(func() []fixture.Act { return w.Acts("evict") }).Should(HaveExactElements(
			SatisfyAll(HaveField("Verb", "Taint"), HaveField("Reason", "ConditionsMatched"), HaveField("Target", node),
				HaveField("TaintKey", key), HaveField("After", evict), HaveField("RuleSet", Not(BeEmpty()))),
			SatisfyAll(HaveField("Verb", "Untaint"), HaveField("Reason", "ConditionsRecovered"), HaveField("Target", node),
				HaveField("TaintKey", key), HaveField("Before", evict)),
		), "one audit line an act, once the API server has answered")
		for _, about := range []string{node, set.Name} {
			Eventually(eventsAbout(ctx, about)).Should(ContainElements("NodeTainted", "NodeUntainted"), "Events on %s", about)
		}
		expectMetrics(ctx)

		By("leaving nothing behind when the set goes")
		w.Discard(ctx, set)
		Expect(w.Node(ctx, node).Annotations).NotTo(HaveKey(fixture.RecordAnnotation))
	})
})

func expectMetrics(ctx context.Context) {
	GinkgoHelper()
	_, err := w.Scrape(ctx, harness.Manager, "")
	Expect(err).To(MatchError(ContainSubstring("401")), "metrics should ask who scrapes them")
	token, err := w.Scraper(ctx)
	Expect(err).NotTo(HaveOccurred())
	metrics, err := w.Scrape(ctx, harness.Manager, token)
	Expect(err).NotTo(HaveOccurred())
	for _, verb := range []string{"Taint", "Untaint"} {
		Expect(metrics).To(ContainSubstring(`autohealer_conditionset_taint_changes_total{policy="evict",result="done",verb="` + verb + "\"} 1\n"))
	}
}

// addPod adds a pod that runs on a node from the start.
func addPod(ctx context.Context, name, node, tolerated string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if tolerated != "" {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: tolerated, Operator: corev1.TolerationOpExists}}
	}
	Expect(w.Client.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(w.Client.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))).To(Succeed())
	})
	Eventually(func() (corev1.PodPhase, error) {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase, err
	}).Should(Equal(corev1.PodRunning))
	return pod
}

func exists(ctx context.Context, object client.Object) func() (bool, error) {
	return func() (bool, error) {
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
		return err == nil, client.IgnoreNotFound(err)
	}
}

// deletedBy tells from the API server's audit log who deleted a pod.
func deletedBy(pod string) []string {
	GinkgoHelper()
	log, err := os.ReadFile(w.AuditLog)
	Expect(err).NotTo(HaveOccurred())
	var users []string
	for line := range bytes.Lines(log) {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Name string }
		}
		if json.Unmarshal(line, &event) == nil && event.Verb == "delete" && event.ObjectRef.Resource == "pods" && event.ObjectRef.Name == pod {
			users = append(users, event.User.Username)
		}
	}
	return users
}

// eventsAbout gives the reasons of the Events on an object, as `kubectl describe` shows them.
func eventsAbout(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		var events eventsv1.EventList
		if err := w.Client.List(ctx, &events); err != nil {
			return nil, err
		}
		var reasons []string
		for i := range events.Items {
			if events.Items[i].Regarding.Name == name {
				reasons = append(reasons, events.Items[i].Reason)
			}
		}
		return reasons, nil
	}
}
