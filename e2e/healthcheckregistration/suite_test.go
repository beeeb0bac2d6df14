// Package healthcheckregistration tests what HealthCheckRegistrations do on a real control plane with Gardener's kinds, as a
// seed, with the whole manager under its own account. A second control plane is the shoot.
package healthcheckregistration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/gardener"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/oracle"
)

func TestHealthCheckRegistrations(t *testing.T) {
	suite.RunApart(t, "HealthCheckRegistrations act", "outage_test", "quiet_test|controllers_test|progressing_test|worker_test")
}

var (
	// h is the seed.
	h           *harness.Harness
	shoot       *cluster.Cluster
	shootClient client.Client

	watching *oracle.Oracle

	worker = schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	gadget = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
)

const specTime = 4 * time.Minute

// judged is what the oracle follows: the targets of these specs but for kinds that only one of them defines, and most of what is checked in the seed.
var judged = oracle.HealthCheckRegistrations{
	Targets: []oracle.Followed{
		followed(worker, "workers"), followed(gadget, "gadgets"), followed(worker.GroupVersion().WithKind("ControlPlane"), "controlplanes"),
		followed(worker.GroupVersion().WithKind("Extension"), "extensions"),
		followed(schema.GroupVersionKind{Group: "operator.gardener.cloud", Version: "v1alpha1", Kind: "Garden"}, "gardens"),
	},
	Checked: []oracle.Followed{
		followed(corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"), followed(appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments"),
		followed(schema.GroupVersionKind{Group: "resources.gardener.cloud", Version: "v1alpha1", Kind: "ManagedResource"}, "managedresources"),
	},
}

func followed(kind schema.GroupVersionKind, resource string) oracle.Followed {
	return oracle.Followed{GroupVersionResource: kind.GroupVersion().WithResource(resource), Kind: kind.Kind}
}

// Whatever a spec asserts, no condition may have been written against the invariants while it ran.
var _ = AfterEach(func(ctx SpecContext) {
	fresh := watching.News(ctx)
	if len(fresh) > 0 { // a spec that had failed before shows this alone
		AddReportEntry("the oracle saw", strings.Join(append(fresh, "logs and the audit log stay in "+h.KeepLogs()), "\n"))
	}
	Expect(fresh).To(BeEmpty(), "the oracle saw invariants broken")
}, NodeTimeout(time.Minute))

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	shoot, err = cluster.Start(ctx, cluster.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(shoot.Stop()).To(Succeed()) })
	shootClient, err = client.New(shoot.Config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter, ManagerArgs: []string{"--leader-elect=false", "--probe-loopback"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	apply(ctx, gardener.Definitions)
	apply(ctx, gardener.Owners)
	_, err = h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, rights)
	watching, err = oracle.Attach(ctx, h.Cluster, oracle.Options{Kinds: []oracle.Kind{judged}, Guardrails: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watching.Stop)
	Expect(h.StartManager(ctx)).To(Succeed())
}, NodeTimeout(5*time.Minute))

// rights to the kinds that the samples aren't about.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: autohealer-health-checks-e2e
  labels: {autohealer.resourcestack.com/aggregate-to-health-checks: "true"}
rules:
- {apiGroups: [example.org], resources: [gadgets, passings], verbs: [get, list, watch, patch]}
- {apiGroups: [example.org], resources: [gadgets/status], verbs: [patch]}
- {apiGroups: [extensions.gardener.cloud], resources: [workers], verbs: [get, list, watch, patch]}
- {apiGroups: [extensions.gardener.cloud], resources: [workers/status], verbs: [patch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}
- {apiGroups: [""], resources: [secrets], resourceNames: [gardener], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch]}
`

// letRead gives the same rights again, to another kind in place of one; they end with the spec, since others take some away.
func letRead(ctx context.Context, kind, other string) {
	GinkgoHelper()
	role := "autohealer-health-checks-" + other
	apply(ctx, "%s", strings.NewReplacer("autohealer-health-checks-e2e", role, kind, other).Replace(rights))
	DeferCleanup(func(ctx SpecContext) {
		_, err := h.Kubectl(ctx, "delete", "clusterrole", role)
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(specTime))
}

func apply(ctx context.Context, manifests string, values ...any) {
	GinkgoHelper()
	_, err := h.KubectlWithInput(ctx, strings.NewReader(fmt.Sprintf(manifests, values...)), "apply", "--server-side", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// register creates a registration, whose deletion ends with the spec.
func register(ctx context.Context, name, spec string) *v1alpha1.HealthCheckRegistration {
	GinkgoHelper()
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(yaml.UnmarshalStrict([]byte(spec), &hcr.Spec)).To(Succeed())
	Expect(h.Client.Create(ctx, hcr)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { unregister(ctx, name) }, NodeTimeout(specTime))
	return hcr
}

// unregister deletes a registration, and waits until it is gone.
func unregister(ctx context.Context, name string) {
	GinkgoHelper()
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(client.IgnoreNotFound(h.Client.Delete(ctx, hcr))).To(Succeed())
	Eventually(ctx, func(ctx context.Context) error { return h.Client.Get(ctx, client.ObjectKeyFromObject(hcr), hcr) }).
		Should(MatchError(ContainSubstring("not found")), "its conditions are removed")
}

// place makes a namespace for one spec.
func place(ctx context.Context) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shoot--"}}
	Expect(h.Client.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// put creates what the manifest says, and its status.
func put(ctx context.Context, namespace, manifest string, values ...any) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(fmt.Appendf(nil, manifest, values...), &o.Object)).To(Succeed())
	o.SetNamespace(namespace)
	wanted := o.DeepCopy()
	Expect(h.Client.Create(ctx, o)).To(Succeed())
	if status, ok := wanted.Object["status"]; ok {
		o.Object["status"] = status
		Expect(h.Client.Status().Update(ctx, o)).To(Succeed())
	}
	return o
}

// setPhase changes what a ConfigMap says, which checks by CEL look at.
func setPhase(ctx context.Context, namespace, name, phase string) {
	GinkgoHelper()
	apply(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: %s, labels: {dial: %s}}, data: {phase: %s}}", namespace, name, name, phase)
}

func putNode(ctx context.Context, name string) {
	GinkgoHelper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(shootClient.Create(ctx, n)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(shootClient.Delete(ctx, n))).To(Succeed()) }, NodeTimeout(harness.Within))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	Expect(shootClient.Status().Update(ctx, n)).To(Succeed())
}

// putKubeconfig lets checks of the namespace's targets reach the shoot.
func putKubeconfig(ctx context.Context, namespace string) {
	GinkgoHelper()
	content, err := os.ReadFile(shoot.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	Expect(h.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}, Data: map[string][]byte{"kubeconfig": content},
	})).To(Succeed())
}

// stored gives a target w as it is.
func stored(ctx context.Context, kind schema.GroupVersionKind, namespace string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	Expect(h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "w"}, o)).To(Succeed())
	return o
}

// condition gives one condition of a target w, to Eventually: nil while there is none.
func condition(ctx context.Context, kind schema.GroupVersionKind, namespace, conditionType string) func() map[string]any {
	return func() map[string]any {
		list, _, _ := unstructured.NestedSlice(stored(ctx, kind, namespace).Object, "status", "conditions")
		for _, item := range list {
			if entry := item.(map[string]any); entry["type"] == conditionType {
				return entry
			}
		}
		return nil
	}
}

func is(status, reason, message string) OmegaMatcher {
	return SatisfyAll(HaveKeyWithValue("status", status), HaveKeyWithValue("reason", reason), HaveKeyWithValue("message", MatchRegexp(message)))
}

// statusOf gives a condition of a registration as "Status Reason: message", to Eventually.
func statusOf(ctx context.Context, name, conditionType string) func() string {
	return func() string {
		hcr := &v1alpha1.HealthCheckRegistration{}
		Expect(h.Client.Get(ctx, client.ObjectKey{Name: name}, hcr)).To(Succeed())
		for _, c := range hcr.Status.Conditions {
			if c.Type == conditionType {
				return string(c.Status) + " " + c.Reason + ": " + c.Message
			}
		}
		return ""
	}
}
