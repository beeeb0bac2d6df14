package flux

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
)

// shoot is a Kustomization, and the namespace of what it applies.
const shoot kustomization = "shoot"

func scales() {
	It("leaves at 0 what a ProbeConfig scaled, with the documented patch, and only with it", func(ctx SpecContext) {
		kubectl(ctx, "create", "namespace", string(shoot))
		_, external := way(ctx, "internal"), way(ctx, "external")
		text, err := concept.File("kustomization-patch.yaml")
		Expect(err).NotTo(HaveOccurred())
		var patch struct{ Spec struct{ Patches []any } }
		Expect(yaml.Unmarshal([]byte(text), &patch)).To(Succeed())
		commit(ctx, map[string]string{"shoot/account.yaml": account, "shoot/deployments.yaml": deployments, "shoot-policies/config.yaml": config})
		like(ctx, string(shoot), "", patch.Spec.Patches)
		like(ctx, "shoot-policies", string(shoot), nil)
		Eventually(ctx, kustomization("shoot-policies").state).Should(beReady())
		Expect(replicas(ctx)).To(Equal(map[string]int32{"kube-controller-manager": 1, "cluster-autoscaler": 2}))

		By("an outage")
		external.BreakNew(faultproxy.Reset)
		external.BreakOpen(faultproxy.Reset)
		Eventually(ctx, replicas).Should(Equal(map[string]int32{"kube-controller-manager": 0, "cluster-autoscaler": 0}))
		shoot.reconcile(ctx)
		outage := map[string]int32{"kube-controller-manager": 0, "cluster-autoscaler": 2}
		Expect(replicas(ctx)).To(Equal(outage))
		Eventually(ctx, func() string {
			return kubectl(ctx, "get", "events", "-n", string(shoot), "--field-selector=reason=ScaledByOthers", "-o", "jsonpath={.items[*].message}")
		}).Should(ContainSubstring("field manager kustomize-controller scaled it to 2"))

		By("another change in Git")
		commit(ctx, map[string]string{"shoot/deployments.yaml": strings.ReplaceAll(deployments, "image: one", "image: two")})
		Eventually(ctx, shoot.state).Should(beReady())
		Expect(replicas(ctx)).To(Equal(outage))

		By("the end of the outage, once the external probe has succeeded for a minute")
		external.BreakNew(faultproxy.None)
		Eventually(ctx, replicas).WithTimeout(specTime).Should(Equal(map[string]int32{"kube-controller-manager": 1, "cluster-autoscaler": 2}))
	}, NodeTimeout(specTime))
}

// way is one by which the API server is reached, with its Secret.
func way(ctx SpecContext, name string) *faultproxy.Proxy {
	GinkgoHelper()
	proxy, err := faultproxy.Start(strings.TrimPrefix(c.URL, "https://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	kubeconfig, err := clientcmd.LoadFromFile(c.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range kubeconfig.Clusters {
		c.Server = "https://" + proxy.Addr()
	}
	text, err := clientcmd.Write(*kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	write(dir, "kubeconfig", string(text))
	kubectl(ctx, "create", "secret", "generic", name, "-n", string(shoot), "--from-file="+dir+"/kubeconfig")
	return proxy
}

func replicas(ctx context.Context) (map[string]int32, error) {
	var list appsv1.DeploymentList
	err := admin.List(ctx, &list, client.InNamespace(shoot))
	all := map[string]int32{}
	for _, d := range list.Items {
		all[d.Name] = *d.Spec.Replicas
	}
	return all, err
}

// account lets the ProbeConfig act.
const account = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: prober, namespace: shoot}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
- {apiGroups: [apps], resources: [deployments/scale], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: prober, namespace: shoot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: prober}
subjects: [{kind: ServiceAccount, namespace: shoot, name: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: autohealer-probe-target, namespace: shoot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: autohealer-probe-target}
subjects: [{kind: ServiceAccount, namespace: autohealer-system, name: autohealer-manager}]
`

const deployments = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: kube-controller-manager, namespace: shoot}
spec:
  replicas: 2
  selector: {matchLabels: {app: dependent}}
  template: {metadata: {labels: {app: dependent}}, spec: {containers: [{name: main, image: one}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cluster-autoscaler, namespace: shoot}
spec:
  replicas: 2
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: main, image: one}]}}
`

const config = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ProbeConfig
metadata: {name: prober, namespace: shoot}
spec:
  internalKubeConfigSecretName: internal
  externalKubeConfigSecretName: external
  probeInterval: 1s
  probeTimeout: 900ms
  initialDelay: 0s
  internalProbeFailureBackoffDuration: 1s
  dependentResourceInfos:
  - {ref: {apiVersion: apps/v1, kind: Deployment, name: kube-controller-manager}, scaleUp: {level: 0}, scaleDown: {level: 0}}
  - {ref: {apiVersion: apps/v1, kind: Deployment, name: cluster-autoscaler}, scaleUp: {level: 0}, scaleDown: {level: 0}}
`
