package healthcheckregistration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// targetsOfOutage are enough for a wave.
const targetsOfOutage = 6

// putTargets creates some, named w and w1, w2 and so on.
func putTargets(ctx context.Context, namespace string) {
	GinkgoHelper()
	putTarget(ctx, gadget, namespace)
	for i := 1; i < targetsOfOutage; i++ {
		apply(ctx, "{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: %s, name: w%d}, spec: {type: %[1]s}}", namespace, i)
	}
}

// statusesOf counts what a condition of a namespace's targets says, as "Status Reason".
func statusesOf(ctx context.Context, namespace, conditionType string) func() map[string]int {
	return func() map[string]int {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(gadget)
		Expect(h.Client.List(ctx, all, client.InNamespace(namespace))).To(Succeed())
		found := map[string]int{}
		for i := range all.Items {
			found[said(&all.Items[i], conditionType)]++
		}
		return found
	}
}

// said is what a condition says, as "Status Reason"; "" where there is none.
func said(o *unstructured.Unstructured, conditionType string) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		if entry := item.(map[string]any); entry["type"] == conditionType {
			return fmt.Sprintf("%s %s", entry["status"], entry["reason"])
		}
	}
	return ""
}

func all(status string) map[string]int { return map[string]int{status: targetsOfOutage} }

// never sees to it that no revision of a namespace's targets that a watch tells of has a condition that says this, until stop is called.
// It outlives the API server's restarts.
func never(ctx context.Context, namespace, status string) (stop func()) {
	GinkgoHelper()
	c, err := dynamic.NewForConfig(h.Config)
	Expect(err).NotTo(HaveOccurred())
	targets := dynamicinformer.NewFilteredDynamicInformer(c, gadgets, namespace, 0, toolscache.Indexers{}, nil).Informer()
	var failed []string
	look := func(object any) {
		if o := object.(*unstructured.Unstructured); said(o, "Dialled") == status {
			failed = append(failed, fmt.Sprint(o.GetName(), " ", o.Object["status"]))
		}
	}
	_, err = targets.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }})
	Expect(err).NotTo(HaveOccurred())
	ctx, end := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { targets.RunWithContext(ctx) })
	Expect(toolscache.WaitForCacheSync(ctx.Done(), targets.HasSynced)).To(BeTrue())
	DeferCleanup(end)
	return func() {
		GinkgoHelper()
		end()
		done.Wait()
		Expect(failed).To(BeEmpty(), "what was %s", status)
	}
}

const (
	isTrue, isFalse, inDoubt = "True HealthCheckSuccessful", "False HealthCheckUnsuccessful", "Unknown HealthCheckInDoubt"
	isUnknown                = "Unknown ConditionCheckError"
)

var _ = Describe("an outage", func() {
	It("of rights makes conditions Unknown, and what is known again is believed as far as the breaker does", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isTrue)))
		stop := never(ctx, namespace, isFalse)

		By("taking the right to read ConfigMaps")
		DeferCleanup(func(ctx SpecContext) { apply(ctx, rights) }, NodeTimeout(specTime))
		withoutRight(ctx, "get", "configmaps")
		setPhase(ctx, namespace, "dial", "Down") // which watches that are open still tell
		Eventually(dialled).Should(Equal(all(isUnknown)))
		Expect(condition(ctx, gadget, namespace, "Dialled")()).To(is("Unknown", "ConditionCheckError", "forbidden"))

		By("restarting the manager without the right, so that it can't watch either")
		restartManager(ctx)
		Consistently(dialled, 8*time.Second).Should(Equal(all(isUnknown)))
		stop()

		By("giving the right back")
		apply(ctx, rights)
		Eventually(statusOf(ctx, namespace, "BreakerOpen"), time.Minute).Should(HavePrefix("True TooManyTurnFalse: "))
		Eventually(dialled, time.Minute).Should(Equal(map[string]int{isFalse: 2, inDoubt: targetsOfOutage - 2}), "some are believed, a wave isn't")
		setPhase(ctx, namespace, "dial", "Up")
		Eventually(dialled).Should(Equal(all(isTrue)))
	}, NodeTimeout(2*specTime))

	It("of the right to write a status leaves targets as they are, and is told", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		DeferCleanup(func(ctx SpecContext) { apply(ctx, rights) }, NodeTimeout(specTime))
		withoutRight(ctx, "patch", "gadgets/status")
		putTarget(ctx, gadget, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("False Forbidden: "))
		settled := stored(ctx, gadget, namespace).GetResourceVersion()
		Expect(stored(ctx, gadget, namespace).GetAnnotations()).NotTo(HaveKey(v1alpha1.AnnotationOwnedConditions), "what isn't there isn't claimed")
		Consistently(func() string { return stored(ctx, gadget, namespace).GetResourceVersion() }, 6*time.Second).Should(Equal(settled), "no try writes anything")

		apply(ctx, rights)
		Eventually(condition(ctx, gadget, namespace, "Dialled"), time.Minute).Should(is("True", "HealthCheckSuccessful", ""))
		Eventually(statusOf(ctx, namespace, "Ready")).Should(HavePrefix("True Operative"))
	}, NodeTimeout(specTime))

	It("of rights that never were there don't keep a registration from being deleted", func(ctx SpecContext) {
		apply(ctx, "%s", fleetings())
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, "delete", "crd", "fleetings.example.org")
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(specTime))
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/fleetings.example.org")
		Expect(err).NotTo(HaveOccurred())
		namespace := place(ctx)
		fleeting := gadget.GroupVersion().WithKind("Fleeting")
		hcr := register(ctx, namespace, about(fleeting, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		Eventually(statusOf(ctx, namespace, "Stalled")).Should(And(HavePrefix("True KindUnusable: "), ContainSubstring("forbidden")))
		Expect(h.Client.Delete(ctx, hcr)).To(Succeed())
		Eventually(func() error { return h.Client.Get(ctx, client.ObjectKeyFromObject(hcr), hcr) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}, NodeTimeout(specTime))

	It("of a kind makes conditions Unknown: its objects go with its definition, and that says nothing of them", func(ctx SpecContext) {
		apply(ctx, "%s", fleetings())
		letRead(ctx, "passings", "fleetings")
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/fleetings.example.org")
		Expect(err).NotTo(HaveOccurred())
		namespace := place(ctx)
		fleeting := "{apiVersion: example.org/v1, kind: Fleeting, metadata: {namespace: %s, name: f}, spec: {phase: Up}}"
		Eventually(func() error {
			_, err := h.KubectlWithInput(ctx, strings.NewReader(fmt.Sprintf(fleeting, namespace)), "apply", "--server-side", "-f", "-")
			return err
		}).Should(Succeed())
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: [{name: f, conditionType: Dialled, object: {apiVersion: example.org/v1, kind: Fleeting, name: \"'f'\"}, evaluate: {cel: {healthy: object.spec.phase == 'Up'}}}]"))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isTrue)))
		stop := never(ctx, namespace, isFalse)
		_, err = h.Kubectl(ctx, "delete", "crd", "fleetings.example.org")
		Expect(err).NotTo(HaveOccurred())
		Eventually(dialled).Should(Equal(all(isUnknown)))
		Consistently(dialled, 12*time.Second).Should(Equal(all(isUnknown)))
		Expect(condition(ctx, gadget, namespace, "Dialled")()).To(is("Unknown", "ConditionCheckError", "the kind isn't served|being removed"))
		stop()

		By("bringing the kind back, and its object")
		apply(ctx, "%s", fleetings())
		Eventually(func() error {
			_, err := h.KubectlWithInput(ctx, strings.NewReader(fmt.Sprintf(fleeting, namespace)), "apply", "--server-side", "-f", "-")
			return err
		}).Should(Succeed())
		Eventually(dialled, 90*time.Second).Should(Equal(all(isTrue)))
	}, NodeTimeout(2*specTime))

	It("of the seed's API server turns nothing False, however long it takes", func(ctx SpecContext) {
		namespace := place(ctx)
		setPhase(ctx, namespace, "dial", "Up")
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, "checks: ["+checkOf("Dialled", "dial")+"]"))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isTrue)))
		stop := never(ctx, namespace, isFalse)
		Expect(h.Kill(cluster.APIServer, 9)).To(Succeed())
		Consistently(func() error { return h.Client.List(ctx, &corev1.NamespaceList{}) }, 12*time.Second).ShouldNot(Succeed(), "two sync periods without it")
		Expect(h.StartComponent(ctx, cluster.APIServer)).To(Succeed())
		Eventually(dialled, 90*time.Second).ShouldNot(BeEmpty())
		Consistently(dialled, 12*time.Second).ShouldNot(HaveKey(isFalse), "two sync periods after it; what was being read may pass by Unknown")
		Eventually(dialled, 90*time.Second).Should(Equal(all(isTrue)))
		stop()

		By("seeing what changes from then on")
		setPhase(ctx, namespace, "dial", "Down")
		Eventually(dialled, 2*time.Minute).Should(HaveKey(isFalse), "watches begin anew after at most a minute")
	}, NodeTimeout(3*specTime))

	It("of a shoot's API server makes conditions Unknown, and passes", func(ctx SpecContext) {
		namespace := place(ctx)
		proxy, err := faultproxy.Start(strings.TrimPrefix(shoot.URL, "https://"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(proxy.Stop()).To(Succeed()) })
		putShoot(ctx, namespace, proxy)
		putTargets(ctx, namespace)
		setPhaseInShoot(ctx, namespace, "Up")
		// A check may take 10 s then, which is the default, and about as long as client-go tries to watch before it pretends to.
		longer := strings.NewReplacer("syncPeriod: 5s", "syncPeriod: 20s")
		register(ctx, namespace, longer.Replace(about(gadget, namespace, `shootKubeconfig: {secretName: gardener}
checks: [{name: s, conditionType: Dialled, cluster: Shoot, object: {apiVersion: v1, kind: ConfigMap, namespace: "'default'", name: target.metadata.namespace}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}}]`)))
		dialled := statusesOf(ctx, namespace, "Dialled")
		Eventually(dialled).Should(Equal(all(isTrue)))
		stop := never(ctx, namespace, isFalse)
		for _, fault := range []faultproxy.Fault{faultproxy.Reset, faultproxy.Swallow} {
			By(fmt.Sprintf("breaking connections, as fault %d", fault))
			proxy.BreakNew(fault)
			proxy.BreakOpen(fault)
			Eventually(dialled, time.Minute).Should(Equal(all(isUnknown)))
			Consistently(dialled, 25*time.Second).Should(Equal(all(isUnknown)), "however often it is looked at")
			proxy.BreakNew(faultproxy.None)
			if fault == faultproxy.Swallow {
				proxy.BreakOpen(faultproxy.Reset) // what has forgotten a connection doesn't remember it
			}
			Eventually(dialled, time.Minute).Should(Equal(all(isTrue)))
		}
		stop()
	}, NodeTimeout(3*specTime))
})

// fleetings is a kind that specs may delete.
func fleetings() string {
	_, definition, _ := strings.Cut(gardener.Definitions, "metadata: {name: passings.example.org}")
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: fleetings.example.org}" +
		strings.NewReplacer("passing", "fleeting", "Passing", "Fleeting").Replace(definition)
}

func restartManager(ctx context.Context) {
	GinkgoHelper()
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	Expect(h.StartManager(ctx)).To(Succeed())
}

// withoutRight takes a resource out of what the specs' ClusterRole lets Autohealer do.
func withoutRight(ctx context.Context, verb, resource string) {
	GinkgoHelper()
	lines := slices.DeleteFunc(strings.SplitAfter(rights, "\n"), func(line string) bool { return strings.Contains(line, "["+resource+"]") })
	apply(ctx, "%s", strings.Join(lines, ""))
	manager := "--as=system:serviceaccount:" + harness.Namespace + ":" + harness.ServiceAccount
	Eventually(func() string {
		kind, subresource, _ := strings.Cut(resource, "/")
		answer, _ := h.Kubectl(ctx, "auth", "can-i", verb, kind, "--subresource="+subresource, "-A", manager) // which fails with the answer no
		return answer
	}).Should(HavePrefix("no"), "the role that the right is aggregated to follows")
}

// setPhaseInShoot changes what a ConfigMap in the shoot says.
func setPhaseInShoot(ctx context.Context, name, phase string) {
	GinkgoHelper()
	o := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: %s}, data: {phase: %s}}", name, phase)
	_, err := shoot.KubectlWithInput(ctx, strings.NewReader(o), "apply", "--server-side", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// putShoot lets checks of the namespace's targets reach the shoot by a proxy.
func putShoot(ctx context.Context, namespace string, by *faultproxy.Proxy) {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(shoot.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range config.Clusters {
		c.Server = "https://" + by.Addr()
	}
	content, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	Expect(h.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}, Data: map[string][]byte{"kubeconfig": content},
	})).To(Succeed())
}
