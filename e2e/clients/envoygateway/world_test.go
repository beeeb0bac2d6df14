//go:build linux

package envoygateway

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/envoy"
)

// port of the Gateways' listener, which is also Envoy's: none of those that Envoy Gateway listens at.
const port = 8888

// site is a namespace with a Gateway, an HTTPRoute to a Service, and real backends of that, all but the namespace named web.
type site struct {
	namespace string
	backends  []*envoy.Backend
}

// cluster is what Envoy Gateway calls that of the HTTPRoute's first rule.
func (s *site) cluster() string { return "httproute/" + s.namespace + "/web/rule/0" }

// listener is what it calls the Gateway's.
func (s *site) listener() string { return s.namespace + "/web/http" }

// newSite makes one with n backends.
func newSite(ctx context.Context, namespace string, n int) *site {
	GinkgoHelper()
	s := &site{namespace: namespace}
	for range n {
		s.backends = append(s.backends, envoy.NewBackendOn(GinkgoTB(), hostIP))
	}
	manifests := fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: %[1]s}
spec: {gatewayClassName: eg, listeners: [{name: http, protocol: HTTP, port: %[2]d}]}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: %[1]s}, spec: {ports: [{name: http, port: 80}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: %[1]s}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]}
`, namespace, port)
	for i, b := range s.backends {
		manifests += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: %s, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`, i, namespace, b.Port, hostIP)
	}
	apply(ctx, manifests)
	DeferCleanup(func(ctx SpecContext) {
		_, err := h.Kubectl(ctx, "delete", "namespace", namespace, "--wait=false")
		Expect(err).NotTo(HaveOccurred())
	})
	return s
}

// proxy starts the Envoy that the Gateway's Deployment says.
func (s *site) proxy(ctx context.Context) *envoy.Envoy {
	GinkgoHelper()
	var deployments appsv1.DeploymentList
	Eventually(ctx, func() ([]appsv1.Deployment, error) {
		err := h.Client.List(ctx, &deployments, client.InNamespace(system), client.MatchingLabels{"gateway.envoyproxy.io/owning-gateway-namespace": s.namespace})
		return deployments.Items, err
	}).Should(HaveLen(1), "Envoy Gateway makes the Gateway's Deployment")
	deployment := deployments.Items[0]
	args := deployment.Spec.Template.Spec.Containers[0].Args
	value := func(flag string) string {
		GinkgoHelper()
		i := slices.Index(args, flag)
		Expect(i).To(BeNumerically(">=", 0), flag+" is among the arguments: "+strings.Join(args, " "))
		return args[i+1]
	}

	// What the pod mounts is in a directory, and Envoy Gateway answers on loopback.
	dir := GinkgoT().TempDir()
	here := strings.NewReplacer("/certs/", dir+"/certs/", "/sds/", dir+"/sds/", "envoy-gateway."+system+".svc.cluster.local.", "127.0.0.1")
	writeSecret(ctx, "envoy", filepath.Join(dir, "certs"))
	var files corev1.ConfigMap
	Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(&deployment), &files)).To(Succeed())
	Expect(os.Mkdir(filepath.Join(dir, "sds"), 0o700)).To(Succeed())
	for name, content := range files.Data {
		Expect(os.WriteFile(filepath.Join(dir, "sds", name), []byte(here.Replace(content)), 0o600)).To(Succeed())
	}
	var bootstrap map[string]any
	Expect(yaml.Unmarshal([]byte(here.Replace(value("--config-yaml"))), &bootstrap)).To(Succeed())
	bootstrap["node"] = map[string]any{"id": "envoy-of-" + s.namespace, "cluster": value("--service-cluster")}
	config, err := yaml.Marshal(bootstrap)
	Expect(err).NotTo(HaveOccurred())
	config, err = yaml.YAMLToJSON(config)
	Expect(err).NotTo(HaveOccurred())
	return envoy.Start(GinkgoTB(), envoy.Options{Config: config, Listeners: []envoy.Listener{{Name: s.listener()}}})
}

// patchPolicy has a Gateway's EnvoyPatchPolicy of this name, as it is stored.
func patchPolicy(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyPatchPolicy"})
	err := h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u)
	return u, err
}

// verdict of Envoy Gateway on an EnvoyPatchPolicy: a condition's status and reason.
func verdict(ctx context.Context, namespace, name, conditionType string) func() (string, error) {
	return func() (string, error) {
		u, err := patchPolicy(ctx, namespace, name)
		if err != nil {
			return "", err
		}
		var status struct {
			Ancestors []struct{ Conditions []metav1.Condition }
		}
		if err := remarshal(u.Object["status"], &status); err != nil || len(status.Ancestors) == 0 {
			return "no verdict", err
		}
		c := meta.FindStatusCondition(status.Ancestors[0].Conditions, conditionType)
		if c == nil {
			return "no such condition", nil
		}
		return string(c.Status) + " " + c.Reason, nil
	}
}

func remarshal(from, into any) error {
	text, err := yaml.Marshal(from)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}
