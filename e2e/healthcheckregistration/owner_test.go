package healthcheckregistration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// ill is a check in Go.
type ill struct{}

// Check says that the target is ill.
func (ill) Check(context.Context, types.NamespacedName) (*healthcheck.SingleCheckResult, error) {
	return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionFalse, Detail: "by the program"}, nil
}

// runProgram runs an extension author's program with checks of the namespace's targets, as an admin, until the spec ends.
func runProgram(namespace string) {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(h.Config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)}})
	Expect(err).NotTo(HaveOccurred())
	checks := healthcheck.For(gadget, healthcheck.WithType(namespace), healthcheck.WithMetaConditions(), healthcheck.WithSyncPeriod(5*time.Second))
	Expect(checks.Check("Dialled", "program", func() healthcheck.HealthCheck { return ill{} }).AddToManager(mgr)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	})
}

// versions are the resourceVersions of a namespace's targets.
func versions(ctx context.Context, namespace string) func() map[string]string {
	return func() map[string]string {
		all, found := &unstructured.UnstructuredList{}, map[string]string{}
		all.SetGroupVersionKind(gadget)
		Expect(h.Client.List(ctx, all, client.InNamespace(namespace))).To(Succeed())
		for i := range all.Items {
			found[all.Items[i].GetName()] = all.Items[i].GetResourceVersion()
		}
		return found
	}
}

// atRest waits until nothing writes to the namespace's targets any more.
func atRest(ctx context.Context, namespace string) {
	GinkgoHelper()
	are, last := versions(ctx, namespace), map[string]string(nil)
	Eventually(func() bool {
		before := last
		last = are()
		return maps.Equal(before, last)
	}, time.Minute, 4*time.Second).Should(BeTrue(), "writes end")
	Consistently(are, 6*time.Second).Should(Equal(last), "and none begin")
}

var _ = Describe("a condition type that two decide", func() {
	It("is a registration's where it was first, and one's alone on new targets", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isTrue)))
		stop := never(ctx, namespace, isFalse)
		runProgram(namespace)
		atRest(ctx, namespace)
		stop()

		By("creating targets that both see at the same moment")
		for i := range targetsOfOutage {
			apply(ctx, "{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: %s, name: new%d}, spec: {type: %[1]s}}", namespace, i)
		}
		Eventually(func() int { return dialled()[isTrue] + dialled()[isFalse] }).Should(Equal(2 * targetsOfOutage))
		atRest(ctx, namespace)
		if dialled()[isFalse] > 0 { // the program was first
			Expect(statusOf(ctx, namespace, "Ready")()).To(ContainSubstring("someone else's"))
		}

		By("deleting the registration")
		unregister(ctx, namespace)
		Eventually(dialled, time.Minute).Should(Equal(map[string]int{isFalse: 2 * targetsOfOutage}), "the program decides then")
	}, NodeTimeout(2*specTime))

	It("is a program's where it was first, and a registration tells that it leaves it alone", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		runProgram(namespace)
		putTargets(ctx, namespace)
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isFalse)))
		spec := about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]")
		register(ctx, namespace, strings.Replace(spec, "type: ", "namespaceSelector: {matchLabels: {tenant: "+namespace+"}}, type: ", 1)) // else it is refused
		_, err := h.Kubectl(ctx, "label", "namespace", namespace, "tenant="+namespace)
		Expect(err).NotTo(HaveOccurred())
		Eventually(statusOf(ctx, namespace, "Ready")).Should(ContainSubstring(
			fmt.Sprintf("conditions of %d targets aren't written: condition Dialled is there already, and someone else's", targetsOfOutage)))
		atRest(ctx, namespace)
		Expect(dialled()).To(Equal(all(isFalse)))
	}, NodeTimeout(2*specTime))

	It("is put right less and less where somebody keeps writing it, and that is told", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := condition(ctx, gadget, namespace, "Dialled")
		Eventually(dialled).Should(is("True", "HealthCheckSuccessful", ""))

		c, err := dynamic.NewForConfig(h.Config)
		Expect(err).NotTo(HaveOccurred())
		theirs, stop := context.WithCancel(ctx)
		defer stop()
		told, err := c.Resource(gadgets).Namespace(namespace).Watch(theirs, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		ended := make(chan int)
		go func() { // a controller that looks at its own object at each event, and writes what it thinks
			defer GinkgoRecover()
			puts := 0
			for event := range told.ResultChan() {
				if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Deleted && said(o, "Dialled") == isTrue {
					puts++
					edit(theirs, gadget, namespace, "Dialled", func(entry map[string]any) {
						entry["status"], entry["reason"], entry["message"] = "False", "HealthCheckUnsuccessful", "(0/1) Health checks successful: 1) it: I say so"
					})
				}
			}
			ended <- puts
		}()
		contested := ContainSubstring("somebody else, or an admission webhook, keeps changing conditions of 1 target, and Autohealer corrects them at longer and longer intervals: condition Dialled of Gadget " + namespace + "/w")
		Eventually(statusOf(ctx, namespace, "Ready")).Should(contested)
		Consistently(statusOf(ctx, namespace, "Ready"), 10*time.Second).Should(contested)
		told.Stop()
		Expect(<-ended).To(BeNumerically("<", 9), "the first two at once, and then after 1, 2, 4 seconds")
		Eventually(dialled, time.Minute).Should(is("True", "HealthCheckSuccessful", ""))
	}, NodeTimeout(2*specTime))
})
