package gitops

import (
	"context"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
)

// Shoot is what a ProbeConfig acts on: a namespace with two Deployments, and two ways to the cluster's own API server, which it probes.
type Shoot struct {
	world     *World
	namespace string
	external  *faultproxy.Proxy
}

// NewShoot makes the namespace and the Secrets; the rest is for a tool to apply.
func (w *World) NewShoot(ctx context.Context, namespace string) *Shoot {
	ginkgo.GinkgoHelper()
	w.Run(ctx, "create", "namespace", namespace)
	s := &Shoot{world: w, namespace: namespace}
	s.way(ctx, "internal")
	s.external = s.way(ctx, "external")
	return s
}

func (s *Shoot) way(ctx context.Context, secret string) *faultproxy.Proxy {
	ginkgo.GinkgoHelper()
	proxy, err := faultproxy.Start(strings.TrimPrefix(s.world.URL, "https://"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(proxy.Stop)
	config, err := clientcmd.LoadFromFile(s.world.Kubeconfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, c := range config.Clusters {
		c.Server = "https://" + proxy.Addr()
	}
	text, err := clientcmd.Write(*config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	dir := ginkgo.GinkgoT().TempDir()
	Write(dir, "kubeconfig", string(text))
	s.world.Run(ctx, "create", "secret", "generic", secret, "-n", s.namespace, "--from-file="+dir+"/kubeconfig")
	return proxy
}

// BreakExternal ends the way from outside, once the ProbeConfig has seen it work.
func (s *Shoot) BreakExternal(ctx context.Context) {
	ginkgo.GinkgoHelper()
	s.world.Run(ctx, "wait", "probeconfig", "prober", "-n", s.namespace, "--for=condition="+v1alpha1.ConditionExternalHealthy, "--timeout=1m")
	s.external.BreakNew(faultproxy.Reset)
	s.external.BreakOpen(faultproxy.Reset)
}

// MendExternal has new connections succeed.
func (s *Shoot) MendExternal() { s.external.BreakNew(faultproxy.None) }

// Replicas are those that its Deployments should have.
func (s *Shoot) Replicas(ctx context.Context) (map[string]int32, error) {
	var list appsv1.DeploymentList
	err := s.world.Admin.List(ctx, &list, client.InNamespace(s.namespace))
	all := map[string]int32{}
	for _, d := range list.Items {
		all[d.Name] = *d.Spec.Replicas
	}
	return all, err
}

// Events are what those of a reason say.
func (s *Shoot) Events(ctx context.Context, reason string) string {
	ginkgo.GinkgoHelper()
	return s.world.Run(ctx, "get", "events", "-n", s.namespace, "--field-selector=reason="+reason, "-o", "jsonpath={.items[*].note}{.items[*].message}")
}

// Rights let its ProbeConfig act.
func (s *Shoot) Rights() string { return strings.ReplaceAll(rights, "NAMESPACE", s.namespace) }

// Deployments are those that the ProbeConfig scales, with an image.
func (s *Shoot) Deployments(image string) string {
	return strings.NewReplacer("NAMESPACE", s.namespace, "IMAGE", image).Replace(deployments)
}

// ProbeConfig needs the rest to be there; annotations are in JSON.
func (s *Shoot) ProbeConfig(annotations string) string {
	return strings.NewReplacer("NAMESPACE", s.namespace, "ANNOTATIONS", annotations).Replace(probeConfig)
}

const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: prober, namespace: NAMESPACE}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
- {apiGroups: [apps], resources: [deployments/scale], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: prober, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: prober}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: autohealer-probe-target, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: autohealer-probe-target}
subjects: [{kind: ServiceAccount, namespace: autohealer-system, name: autohealer-manager}]
`

const deployments = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: kube-controller-manager, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: dependent}}
  template: {metadata: {labels: {app: dependent}}, spec: {containers: [{name: main, image: IMAGE}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cluster-autoscaler, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: main, image: IMAGE}]}}
`

// One failure begins the minute after which the Deployments get back their replicas anew, so a probe has time also on a busy machine.
const probeConfig = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ProbeConfig
metadata: {name: prober, namespace: NAMESPACE, annotations: ANNOTATIONS}
spec:
  internalKubeConfigSecretName: internal
  externalKubeConfigSecretName: external
  probeInterval: 4s
  probeTimeout: 3900ms
  initialDelay: 0s
  internalProbeFailureBackoffDuration: 1s
  dependentResourceInfos:
  - {ref: {apiVersion: apps/v1, kind: Deployment, name: kube-controller-manager}, scaleUp: {level: 0}, scaleDown: {level: 0}}
  - {ref: {apiVersion: apps/v1, kind: Deployment, name: cluster-autoscaler}, scaleUp: {level: 0}, scaleDown: {level: 0}}
`
