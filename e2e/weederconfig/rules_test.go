package weederconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("Rules over the config alone", func() {
	var s shop
	BeforeEach(func(ctx SpecContext) { s = newShop(ctx) })

	DescribeTable("refuse", func(ctx SpecContext, change func(*v1alpha1.WeederConfigSpec), says string) {
		wc := s.weeder("refused", "etcd", "api")
		Eventually(func() error { return h.Client.Create(ctx, wc.DeepCopy(), dryRun) }).Should(Succeed(), "unchanged it is fine")
		change(&wc.Spec)
		Expect(h.Client.Create(ctx, wc, dryRun)).To(MatchError(ContainSubstring(says)))
	},
		Entry("no Service", func(spec *v1alpha1.WeederConfigSpec) { clear(spec.ServicesAndDependantSelectors) }, "should have at least 1 properties"),
		Entry("a Service that can't be one", func(spec *v1alpha1.WeederConfigSpec) {
			spec.ServicesAndDependantSelectors["etcd.svc"] = spec.ServicesAndDependantSelectors["etcd"]
		}, "a Service name has at most 63 characters"),
		Entry("no podSelectors", selecting(), "should have at least 1 items"),
		Entry("an empty podSelector", selecting(v1alpha1.LabelSelector{}), "an empty podSelector would select every pod"),
		Entry("a podSelector with NotIn only", selecting(expressions("NotIn", "a")), "weederconfig/negative-pod-selector"),
		Entry("a podSelector with DoesNotExist only", selecting(expressions("DoesNotExist")), "weederconfig/negative-pod-selector"),
		Entry("a podSelector that no labels fit", selecting(v1alpha1.LabelSelector{
			MatchLabels: map[string]string{"role": "a"}, MatchExpressions: expressions("In", "b").MatchExpressions,
		}), "weederconfig/contradictory-pod-selector"),
		Entry("a podSelector that can't be read", selecting(expressions("In")), "operators In and NotIn need values"),
		Entry("no watchDuration", func(spec *v1alpha1.WeederConfigSpec) { spec.WatchDuration = "0s" }, "must be more than 0s and at most 30m"),
		Entry("too long a watchDuration", func(spec *v1alpha1.WeederConfigSpec) { spec.WatchDuration = "30m1s" }, "must be more than 0s and at most 30m"),
		Entry("no cooldown", func(spec *v1alpha1.WeederConfigSpec) { spec.Cooldown = "999ms" }, "must be at least 1s and at most 10m"),
		Entry("too long a cooldown", func(spec *v1alpha1.WeederConfigSpec) { spec.Cooldown = "10m1s" }, "must be at least 1s and at most 10m"),
		Entry("no deletions", func(spec *v1alpha1.WeederConfigSpec) { spec.MaxDeletionsPerWatch = ptr.To[int32](0) }, "spec.maxDeletionsPerWatch"),
		Entry("too many deletions", func(spec *v1alpha1.WeederConfigSpec) { spec.MaxDeletionsPerWatch = ptr.To[int32](10001) }, "spec.maxDeletionsPerWatch"),
		Entry("too many repeats", func(spec *v1alpha1.WeederConfigSpec) { spec.MaxRepeatsPerOwner = ptr.To[int32](21) }, "spec.maxRepeatsPerOwner"),
		Entry("a tenant's reach into other namespaces", func(spec *v1alpha1.WeederConfigSpec) {
			spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "weederconfig/namespace-selector-of-tenant"),
	)

	It("admit the seed's own spec", func(ctx SpecContext) {
		_, err := h.Apply(ctx, fmt.Sprintf(seed, s.namespace), "--dry-run=server")
		Expect(err).NotTo(HaveOccurred())
	})
})

// seed is the configuration of the document that this kind grew out of, word for word below spec.
const seed = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: WeederConfig
metadata:
  name: seed
  namespace: %s
spec:
  watchDuration: 2m0s
  servicesAndDependantSelectors:
    etcd-main-client: # name of the service/endpoint for etcd statefulset that weeder will receive events for.
      podSelectors: # all pods matching the label selector are direct dependencies for etcd service
        - matchExpressions:
            - key: gardener.cloud/role
              operator: In
              values:
                - controlplane
            - key: role
              operator: In
              values:
                - apiserver
    kube-apiserver: # name of the service/endpoint for kube-api-server pods that weeder will receive events for.
      podSelectors: # all pods matching the label selector are direct dependencies for kube-api-server service
        - matchExpressions:
            - key: gardener.cloud/role
              operator: In
              values:
                - controlplane
            - key: role
              operator: NotIn
              values:
                - main
                - apiserver
`

// selecting gives the Service's dependents these podSelectors.
func selecting(selectors ...v1alpha1.LabelSelector) func(*v1alpha1.WeederConfigSpec) {
	return func(spec *v1alpha1.WeederConfigSpec) {
		spec.ServicesAndDependantSelectors["etcd"] = v1alpha1.DependantSelectors{PodSelectors: append([]v1alpha1.LabelSelector{}, selectors...)}
	}
}

// expressions is a selector with one expression over a role.
func expressions(operator metav1.LabelSelectorOperator, values ...string) v1alpha1.LabelSelector {
	return v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelSelectorRequirement{{Key: "role", Operator: operator, Values: values}}}
}

var _ = Describe("Live rules", func() {
	DescribeTable("refuse what the cluster shows to be dangerous", func(ctx SpecContext, prepare func(context.Context, shop) *v1alpha1.WeederConfig, rule string) {
		s := newShop(ctx)
		wc := prepare(ctx, s)
		Eventually(func() error { return h.Client.Create(ctx, wc.DeepCopy(), dryRun) }).Should(MatchError(ContainSubstring(rule)))
	},
		Entry("a Service's own pods", func(ctx context.Context, s shop) *v1alpha1.WeederConfig {
			s.upstream(ctx, "etcd", 1)
			return s.weeder("own", "etcd", "etcd")
		}, "weederconfig/selects-own-pods: selects pods of a Service as dependents of that same Service"),
		Entry("a cycle over two configs", func(ctx context.Context, s shop) *v1alpha1.WeederConfig {
			s.upstream(ctx, "etcd", 1)
			s.upstream(ctx, "api", 1)
			create(ctx, s.weeder("first", "etcd", "api"))
			return s.weeder("second", "api", "etcd")
		}, "api → etcd → api"),
		Entry("Autohealer's own pods", func(ctx context.Context, _ shop) *v1alpha1.WeederConfig {
			own := shop{harness.Namespace}
			pod := own.bare(ctx, "manager", func(p *corev1.Pod) { p.Labels["app.kubernetes.io/name"] = "autohealer" })
			DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, pod)).To(Succeed()) })
			return own.weeder("autohealer", "etcd", "manager")
		}, "weederconfig/selects-autohealer: selects pods of Autohealer itself: autohealer-system/manager"),
		Entry("an account that may not delete pods", func(_ context.Context, s shop) *v1alpha1.WeederConfig {
			wc := s.weeder("rights", "etcd", "api")
			wc.Spec.ServiceAccountName = "nobody"
			return wc
		}, "weederconfig/account-may-not-delete: ServiceAccount nobody may not delete pods"),
	)

	It("warn of what is likely a mistake", func(ctx SpecContext) {
		s := newShop(ctx)
		s.bare(ctx, "bare", func(*corev1.Pod) {})
		s.bare(ctx, "static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		template := podTemplate("owned", map[string]string{crash: "true"})
		Expect(h.Client.Create(ctx, &appsv1.StatefulSet{ObjectMeta: named(s.namespace, "member"), Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template, PodManagementPolicy: appsv1.ParallelPodManagement,
		}})).To(Succeed())
		job := podTemplate("job", map[string]string{crash: "true"})
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		Expect(h.Client.Create(ctx, &batchv1.Job{ObjectMeta: named(s.namespace, "job"), Spec: batchv1.JobSpec{Template: job}})).To(Succeed())
		ports := []corev1.ServicePort{{Port: 80}}
		for name, spec := range map[string]corev1.ServiceSpec{
			"selectorless": {Ports: ports}, "external": {Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
			"publishing": {Ports: ports, Selector: map[string]string{"app": "nobody"}, PublishNotReadyAddresses: true},
		} {
			Expect(h.Client.Create(ctx, &corev1.Service{ObjectMeta: named(s.namespace, name), Spec: spec})).To(Succeed())
		}
		selector := v1alpha1.DependantSelectors{PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{crash: "true"}}}}
		wc := s.weeder("first", "publishing", "x")
		wc.Spec.ServicesAndDependantSelectors["publishing"] = selector
		create(ctx, wc)
		second := s.weeder("second", "missing", "x")
		second.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WeederConfig"))
		for _, name := range []string{"missing", "selectorless", "external", "publishing"} {
			second.Spec.ServicesAndDependantSelectors[name] = selector
		}
		second.Spec.WatchDuration = "20s"
		text, err := json.Marshal(second)
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "second.json")
		Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
		told := func() string {
			var out bytes.Buffer
			Expect(h.KubectlTo(ctx, &out, "create", "--dry-run=server", "-f", file)).To(Succeed())
			return out.String()
		}
		for _, rule := range []string{
			"short-watch", "selects-ownerless-pods", "selects-mirror-pods", "selects-job-pods", "shared-pods", "selects-most-pods", "selects-quorum",
			"service-missing", "service-without-selector", "service-external", "service-publishes-not-ready",
		} {
			Eventually(told).Should(ContainSubstring("weederconfig/"+rule+":"), rule)
		}
	})
})
