package outlierpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// routes is as much of a kind of routes as Autohealer reads.
const routes = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: httpproxies.projectcontour.io}
spec:
  group: projectcontour.io
  names: {kind: HTTPProxy, plural: httpproxies, singular: httpproxy, listKind: HTTPProxyList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const route = `
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: shop, namespace: layers}
spec:
  virtualhost: {fqdn: shop.example.com}
  routes:
  - {conditions: [{prefix: /}], services: [{name: web, port: 80}]}
  - {conditions: [{prefix: /mail}], services: [{name: mail, port: 80}]}
`

// layer is a policy, and after how many errors each cluster ejects once it is applied over those before it; 0 is never.
type layer struct {
	title, namespace, name, target string
	want                           map[string]int
	// holds counts the clusters for which it holds at the end, and reason is of its Accepted then.
	holds  int32
	reason string
}

const (
	webHTTP, webAdmin, mail   = "layers/web/80", "layers/web/81", "layers/mail/80"
	webOfRoute, mailOfRoute   = "layers/web/80@httpproxy/shop", "layers/mail/80@httpproxy/shop"
	elsewhere                 = "beyond/web/80"
	firstThreshold            = 11
	disabledLayer             = 6
	wholeProxy, serviceOfWeb  = `{group: projectcontour.io, kind: HTTPProxy, name: shop}`, `{group: "", kind: Service, name: web}`
	portOfWeb, backendOfProxy = `{group: "", kind: Service, name: web, sectionName: admin}`, `{group: projectcontour.io, kind: HTTPProxy, name: shop, backend: {name: web, port: 80}}`
)

// layers, the least specific first; each one's threshold is one more than that of the one before.
var layers = []layer{
	{"the cluster's default", harness.Namespace, "default", "", map[string]int{elsewhere: 11, webHTTP: 11, webAdmin: 11, mail: 11}, -1, "Accepted"},
	{"the namespace's default", "layers", "default", "", map[string]int{elsewhere: 11, webHTTP: 12, webAdmin: 12, mail: 12}, 0, "Overridden"},
	{"the route", "layers", "route", wholeProxy, map[string]int{webHTTP: 12, mail: 12, webOfRoute: 13, mailOfRoute: 13}, 0, "Overridden"},
	{"the Service", "layers", "service", serviceOfWeb, map[string]int{webHTTP: 14, webAdmin: 14, mail: 12, webOfRoute: 14, mailOfRoute: 13}, 1, "Accepted"},
	{"the Service's port", "layers", "port", portOfWeb, map[string]int{webHTTP: 14, webAdmin: 15, webOfRoute: 14}, 1, "Accepted"},
	{"the route's backend", "layers", "backend", backendOfProxy, map[string]int{webHTTP: 14, webAdmin: 15, webOfRoute: 16, mailOfRoute: 13}, 1, "Accepted"},
	{"a Service that is left alone", "layers", "alone", `{group: "", kind: Service, name: mail}`,
		map[string]int{elsewhere: 11, webHTTP: 14, webAdmin: 15, webOfRoute: 16, mail: 0, mailOfRoute: 0}, 2, "Accepted"},
}

func (l layer) manifest(i int) string {
	text := fmt.Sprintf("apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: OutlierPolicy\nmetadata: {name: %s, namespace: %s}\nspec:\n", l.name, l.namespace)
	if l.target != "" {
		text += "  targetRefs: [" + l.target + "]\n"
	}
	if i == disabledLayer {
		return text + "  disabled: true\n"
	}
	return text + fmt.Sprintf("  outlierDetection: {consecutiveServerErrors: %d, maxEjectionPercent: 40}\n", firstThreshold+i)
}

// plan runs the plugin. It ends with 1 where something would be done.
func plan(ctx context.Context, manifest string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "policy.yaml")
	Expect(os.WriteFile(file, []byte(manifest), 0o600)).To(Succeed())
	out, err := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), "plan", "-f", file, "--kubeconfig="+h.Kubeconfig).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		err = nil
	}
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return string(out)
}

var _ = Describe("The most specific policy", func() {
	It("holds: in Envoy, in status and in plan; and without any a cluster stays", func(ctx SpecContext) {
		serve(ctx, "beyond", 1)
		serve(ctx, "layers", 1)
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: layers}, spec: {ports: [{name: http, port: 80}, {name: admin, port: 81}]}}")
		apply(ctx, "{apiVersion: v1, kind: Service, metadata: {name: mail, namespace: layers}, spec: {ports: [{name: http, port: 80}]}}")
		apply(ctx, routes)
		_, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd/httpproxies.projectcontour.io")
		Expect(err).NotTo(HaveOccurred())
		apply(ctx, route)
		e := proxy(ctx, edge, clients)
		for i, l := range layers {
			By(l.title)
			if i == 2 { // the kind of routes came while the manager ran: it looks for such twice a minute
				Eventually(func() string { return plan(ctx, l.manifest(i)) }, 2*harness.Within).Should(ContainSubstring("Cluster " + webOfRoute))
			}
			apply(ctx, l.manifest(i))
			DeferCleanup(func(ctx SpecContext) {
				Expect(client.IgnoreNotFound(h.Client.Delete(ctx, policyNamed(l.namespace, l.name)))).To(Succeed())
			})
			for cluster, errors := range l.want {
				Eventually(e.Threshold, 2*harness.Within).WithArguments(cluster).Should(Equal(errors), cluster)
			}
		}

		By("status")
		for i, l := range layers {
			Eventually(condition(ctx, l.namespace, l.name, "Accepted")).Should(HaveSuffix(" "+l.reason), l.title)
			Eventually(func() int32 {
				op, err := policyOf(ctx, l.namespace, l.name)
				Expect(err).NotTo(HaveOccurred())
				if l.holds < 0 { // it depends on what else is in the cluster
					return l.holds
				}
				return op.Status.Ancestors[0].Clusters
			}).Should(Equal(l.holds), l.title)
			op, err := policyOf(ctx, l.namespace, l.name)
			Expect(err).NotTo(HaveOccurred())
			a := op.Status.Ancestors[0]
			if a.Clusters == 0 || i == disabledLayer {
				Expect(a.Effective).To(BeNil(), l.title)
				continue
			}
			Expect(a.Effective.ConsecutiveServerErrors).To(HaveValue(BeEquivalentTo(firstThreshold+i)), l.title)
			Expect(a.Effective.MaxEjectionPercent).To(HaveValue(BeEquivalentTo(40)), l.title)
			Expect(a.Effective.BaseEjectionTime).To(BeEquivalentTo("30s"), "what isn't written is Envoy's default, and nobody else's")
			Eventually(func() bool {
				op, err := policyOf(ctx, l.namespace, l.name)
				return err == nil && meta.IsStatusConditionTrue(op.Status.Ancestors[0].Conditions, "Programmed")
			}).Should(BeTrue(), l.title)
		}

		By("plan")
		Expect(plan(ctx, layers[3].manifest(3))).To(And(
			ContainSubstring("Cluster "+webHTTP+": 1 host"), ContainSubstring("Cluster "+webAdmin+": OutlierPolicy layers/port holds, for the Service's port"),
			ContainSubstring("Cluster "+webOfRoute+": OutlierPolicy layers/backend holds, for the route's backend")))
		Expect(plan(ctx, layers[1].manifest(1))).To(And(
			ContainSubstring("Cluster "+webHTTP+": OutlierPolicy layers/service holds, for the Service"), ContainSubstring("Cluster "+mail+": OutlierPolicy layers/alone holds, for the Service")))

		By("taking them away, the cluster's default too")
		before := e.Churn()
		for _, l := range layers {
			deletePolicy(ctx, l.namespace, l.name)
		}
		for _, cluster := range []string{elsewhere, webHTTP, webAdmin, mail, webOfRoute, mailOfRoute} {
			Eventually(e.Threshold).WithArguments(cluster).Should(BeZero(), cluster)
		}
		Expect(e.Churn().Removed).To(Equal(before.Removed), "detection goes, no cluster does")
	}, NodeTimeout(8*harness.Within))
})
