package runbooks

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/operations/world"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

// restart starts the manager anew, with more arguments.
func restart(ctx context.Context, args ...string) {
	GinkgoHelper()
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	Expect(h.StartManager(ctx, args...)).To(Succeed())
}

// shopServices makes those of namespace shop.
func shopServices(ctx context.Context) {
	GinkgoHelper()
	for i := range 12 {
		_, err := h.Apply(ctx, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%02d, namespace: shop}, spec: {ports: [{port: 80}]}}", i))
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("docs/runbooks, of Envoys", Ordered, ContinueOnFailure, func() {
	const cluster = "shop/s00/80"
	var envoys *world.Envoys

	BeforeAll(func(ctx SpecContext) {
		envoys = world.NewEnvoys()
		kubectl(ctx, "create", "namespace", "shop")
		shopServices(ctx)
		_, err := h.Apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: default, namespace: shop}
spec: {outlierDetection: {consecutiveServerErrors: 5}}
`)
		Expect(err).NotTo(HaveOccurred())
		restart(ctx, envoys.ManagerArgs()...)
	})
	AfterAll(func(ctx SpecContext) {
		kubectl(ctx, "-n", "shop", "delete", "outlierpolicy", "--all")
		kubectl(ctx, "delete", "namespace", "shop")
		restart(ctx)
	})

	It("envoy-cluster-removal-delayed.md", func(ctx SpecContext) {
		e := h.StartEnvoy(ctx, envoys)
		Eventually(e.Threshold).WithArguments(cluster).Should(Equal(5))
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		Expect(h.Client.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace("shop"))).To(Succeed())
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		series(ctx, `autohealer_xds_clusters{state="removal_delayed"} 12`)
		expectWholePage(ctx, "envoy-cluster-removal-delayed.md")
		shopServices(ctx)
		run(ctx, "kubectl autohealer thaw")
		series(ctx, `autohealer_xds_clusters{state="removal_delayed"} 0`)
		Eventually(e.Threshold).WithArguments(cluster).Should(Equal(5))
		Expect(e.Churn().Removed).To(BeZero())
	}, NodeTimeout(4*harness.Within))

	It("envoys-not-acknowledging.md", func(ctx SpecContext) {
		h.PlayEnvoy(ctx, envoys, xdsclient.Options{Node: &corev3.Node{Id: "stuck"}, Mute: true})
		Eventually(value).WithContext(ctx).WithArguments("autohealer_xds_longest_unacknowledged_seconds").Should(BeNumerically(">", 3), "and the alert fires at 60")
		expectWholePage(ctx, "envoys-not-acknowledging.md")
	})

	It("ejections-unknown.md", func(ctx SpecContext) {
		series(ctx, "autohealer_xds_longest_unacknowledged_seconds 0")
		restart(ctx, append(envoys.ManagerArgs(), "--ejections-from=edge/envoys/ejections")...)
		series(ctx, `autohealer_outlierpolicy_envoys{state="missing"} 1`)
		expectWholePage(ctx, "ejections-unknown.md")
		restart(ctx, envoys.ManagerArgs()...)
		expectSound(ctx)
	}, NodeTimeout(4*harness.Within))

	It("envoy-config-stale.md", func(ctx SpecContext) {
		const published = "autohealer_xds_published_timestamp_seconds"
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: harness.ServiceAccount}}
		Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		rules := slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.ResourceNames, "autohealer-envoy-clusters") })
		Expect(h.Client.Update(ctx, role)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			role.Rules = rules
			Expect(h.Client.Update(ctx, role)).To(Succeed())
			Eventually(value).WithContext(ctx).WithArguments(published).Should(BeNumerically(">", float64(time.Now().Unix())))
			expectSound(ctx)
		})
		restart(ctx, envoys.ManagerArgs()...)
		began, err := value(ctx, published)
		Expect(err).NotTo(HaveOccurred())
		expectWholePage(ctx, "envoy-config-stale.md")
		Expect(value(ctx, published)).To(Equal(began), "the alert fires once that is five minutes ago")
	}, NodeTimeout(4*harness.Within))

	It("envoy-config-rejected.md", func(ctx SpecContext) {
		h.PlayEnvoy(ctx, envoys, xdsclient.Options{Node: &corev3.Node{Id: "old"}, Reject: func(c *clusterv3.Cluster) string {
			if c.GetName() != cluster || c.GetOutlierDetection() == nil {
				return ""
			}
			return "Error adding/updating cluster(s) " + cluster + ": Unable to parse JSON as proto (INVALID_ARGUMENT: no such field: max_ejection_time_jitter)"
		}})
		series(ctx, `autohealer_xds_rejected_resources{type="cluster"} 1`)
		expectWholePage(ctx, "envoy-config-rejected.md")
		kubectl(ctx, "-n", "shop", "patch", "outlierpolicy", "default", "--type=merge", "-p", `{"spec":{"disabled":true}}`)
		series(ctx, `autohealer_xds_rejected_resources{type="cluster"} 0`)
	})

	It("don't make the manager's metrics grow, nor do Services", func(ctx SpecContext) {
		connect := func(id string) {
			h.PlayEnvoy(ctx, envoys, xdsclient.Options{Node: &corev3.Node{Id: id}})
		}
		streams := func(n int) { series(ctx, fmt.Sprintf(`autohealer_xds_streams{protocol="delta"} %d`, n)) }
		connect("first")
		streams(1)
		series(ctx, `autohealer_xds_clusters{state="served"} 12`)
		before := own(ctx)
		AddReportEntry("series with Envoys", len(before))
		Expect(len(before)).To(BeNumerically("<", 150))
		for i := range 4 {
			connect(fmt.Sprint("further-", i))
		}
		streams(5)
		for i := range 20 {
			kubectl(ctx, "-n", "shop", "create", "service", "clusterip", fmt.Sprint("further-", i), "--tcp=80")
		}
		series(ctx, `autohealer_xds_clusters{state="served"} 32`)
		Expect(own(ctx).Difference(before)).To(BeEmpty())
		for i := range 20 {
			kubectl(ctx, "-n", "shop", "delete", "service", fmt.Sprint("further-", i))
		}
	}, NodeTimeout(4*harness.Within))

	It("envoy-connections-refused.md", func(ctx SpecContext) {
		kustomized := kubectl(ctx, "kustomize", filepath.Join(h.Root(), "config", "default"))
		manager := slices.DeleteFunc(strings.Split(kustomized, "\n---\n"), func(m string) bool { return !strings.Contains(m, "\nkind: Deployment\n") })
		Expect(manager).To(HaveLen(1))
		args := "      - args:\n"
		for _, arg := range []string{"--xds-bind-address=:18000", "--xds-client-ca=/etc/envoys/ca.crt", "--xds-client=spiffe://example.org/ns/edge/sa/envoy=*"} {
			args += "        - " + arg + "\n"
		}
		_, err := h.Apply(ctx, strings.Replace(manager[0], "      - args:\n", args, 1))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(h.Deploy(ctx, harness.Namespace)).To(Succeed())
		})

		const other = "spiffe://example.org/ns/shop/sa/envoy"
		e := h.StartEnvoyAs(ctx, envoys, other)
		Eventually(value).WithContext(ctx).WithArguments(`autohealer_xds_refused_streams_total{reason="identity"}`).Should(BeNumerically(">", 0))
		expectWholePage(ctx, "envoy-connections-refused.md")
		restart(ctx, append(envoys.ManagerArgs(), "--xds-client="+other+"=shop")...)
		Eventually(e.Threshold).WithArguments(cluster).Should(BeNumerically(">=", 0))
	}, NodeTimeout(4*harness.Within))
})
