//go:build linux

package envoygateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// routes of all kinds and shapes, beside the site's own.
const routes = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: %[1]s}
spec:
  gatewayClassName: eg
  listeners: [{name: http, protocol: HTTP, port: 8888}, {name: tcp, protocol: TCP, port: 8889}, {name: tls, protocol: TLS, port: 8890, tls: {mode: Passthrough}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shapes, namespace: %[1]s}
spec:
  parentRefs: [{name: web, sectionName: http}]
  hostnames: [shapes.example.com]
  rules:
  - {matches: [{path: {value: /a}}, {path: {value: /b}}], backendRefs: [{name: web, port: 80}]}
  - {matches: [{path: {value: /c}}], backendRefs: [{name: web, port: 80, weight: 1}, {name: web, port: 80, weight: 0}]}
  - matches: [{path: {value: /d}}]
    backendRefs:
    - {name: web, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: x, value: a}]}}]}
    - {name: web, port: 80}
  - {matches: [{path: {value: /e}}], filters: [{type: RequestRedirect, requestRedirect: {statusCode: 301}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls, namespace: %[1]s}
spec: {parentRefs: [{name: web, sectionName: http}], hostnames: [calls.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: bytes, namespace: %[1]s}
spec: {parentRefs: [{name: web, sectionName: tcp}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: sealed, namespace: %[1]s}
spec: {parentRefs: [{name: web, sectionName: tls}], hostnames: [sealed.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}
`

// The names of clusters are Envoy Gateway's own business: this tells when they are others.
var _ = Describe("The clusters of a Gateway", func() {
	It("are found by their routes, and patched as an OutlierPolicy says", func(ctx SpecContext) {
		s := newSite(ctx, "shapes", 2)
		apply(ctx, fmt.Sprintf(routes, s.namespace))
		e := s.proxy(ctx)
		Eventually(s.answers(e)).Should(BeTrue())

		op := &v1alpha1.OutlierPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
			Spec: v1alpha1.OutlierPolicySpec{
				TargetRefs: []v1alpha1.OutlierTargetReference{{Kind: "Service", Name: "web"}}, OutlierDetection: &v1alpha1.OutlierDetection{ConsecutiveServerErrors: new(int32(3))},
			},
		}
		Expect(h.Client.Create(ctx, op)).To(Succeed())
		gate, err := guard.New(guard.Options{})
		Expect(err).NotTo(HaveOccurred())
		admitted, said := guard.Admit(ctx, gate, op)
		Expect(admitted.Valid()).To(BeTrue(), said.Message())
		policy, err := outlier.NewPolicy(op)
		Expect(err).NotTo(HaveOccurred())

		var gateway unstructured.Unstructured
		gateway.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"})
		name := types.NamespacedName{Namespace: s.namespace, Name: "web"}
		Expect(h.Client.Get(ctx, name, &gateway)).To(Succeed())
		patched := func() []outlier.Patched {
			return outlier.NewIndex([]*outlier.Policy{policy}, nil, harness.Namespace).Patches(s.world(ctx))
		}
		Eventually(patched).Should(HaveLen(8), "all routes are taken")
		wanted := outlier.NewPatchSet(patched())
		clusters := slices.Sorted(maps.Keys(wanted))
		Expect(clusters).To(Equal([]string{
			"grpcroute/shapes/calls/rule/0", "httproute/shapes/shapes/rule/0", "httproute/shapes/shapes/rule/1", "httproute/shapes/shapes/rule/2/backend/0",
			"httproute/shapes/shapes/rule/2/backend/1", "httproute/shapes/web/rule/0", "tcproute/shapes/bytes/rule/-1",
			"tlsroute/shapes/sealed/rule/-1",
		}))
		hand := &actuate.EnvoyPatches{Reader: h.Client, Live: h.Client, Writer: h.Client, Current: &confirmed{}, Acts: logr.Discard()}
		held, err := hand.Apply(ctx, actuate.GatewayPatches{
			Gateway: name, GatewayUID: gateway.GetUID(), Wanted: wanted, State: lifecycle.Active, Admitted: map[types.UID]actuate.AdmittedOutlier{op.UID: admitted},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(held).To(BeEmpty())
		Eventually(ctx, verdict(ctx, s.namespace, "autohealer.web", "Programmed")).Should(Equal("True Programmed"))
		for _, cluster := range clusters {
			Eventually(func() int { return e.Threshold(cluster) }).Should(Equal(3), cluster)
		}

		By("undoing it")
		_, err = hand.Apply(ctx, actuate.GatewayPatches{Gateway: name, State: lifecycle.Active})
		Expect(err).NotTo(HaveOccurred())
		for _, cluster := range clusters {
			Eventually(func() int { return e.Threshold(cluster) }).Should(BeZero(), cluster)
		}
	}, NodeTimeout(4*harness.Within))
})

// confirmed takes all policies for what is stored.
type confirmed struct{}

func (*confirmed) CheckAll(context.Context, schema.GroupVersionKind, []kube.Admission) map[types.UID]error {
	return nil
}

// world reads what a site's patches are made of.
func (s *site) world(ctx context.Context) outlier.PatchObjects {
	GinkgoHelper()
	w := outlier.PatchObjects{
		Gateways: []outlier.Gateway{{NamespacedName: types.NamespacedName{Namespace: s.namespace, Name: "web"}}}, Services: map[types.NamespacedName]*corev1.Service{},
	}
	for kind, version := range map[string]string{"HTTPRoute": "v1", "GRPCRoute": "v1", "TCPRoute": "v1", "TLSRoute": "v1"} {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: version, Kind: kind + "List"})
		Expect(h.Client.List(ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
		for i := range list.Items {
			r, err := outlier.ReadGatewayRoute(kind, list.Items[i].Object)
			Expect(err).NotTo(HaveOccurred())
			w.Routes = append(w.Routes, r)
		}
	}
	var services corev1.ServiceList
	Expect(h.Client.List(ctx, &services, client.InNamespace(s.namespace))).To(Succeed())
	for i := range services.Items {
		w.Services[client.ObjectKeyFromObject(&services.Items[i])] = &services.Items[i]
	}
	return w
}
