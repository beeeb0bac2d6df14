package argocd

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
)

func selfHeals() {
	for name, options := range map[application][]any{
		"client-side": {"RespectIgnoreDifferences=true"},
		"server-side": {"RespectIgnoreDifferences=true", "ServerSideApply=true"},
	} {
		It("leaves at 0 what a ProbeConfig scaled, with the documented ignoreDifferences, and only with them: "+string(name), func(ctx SpecContext) {
			probed, err := cluster.Start(ctx, cluster.Options{Out: GinkgoWriter})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(probed.Stop)
			_, external := way(ctx, probed, name, "internal"), way(ctx, probed, name, "external")

			text, err := concept.File("application-patch.yaml")
			Expect(err).NotTo(HaveOccurred())
			var patch struct {
				Spec struct {
					IgnoreDifferences []any
					SyncPolicy        struct{ SyncOptions []any }
				}
			}
			Expect(yaml.Unmarshal([]byte(text), &patch)).To(Succeed())
			Expect(patch.Spec.SyncPolicy.SyncOptions).To(Equal([]any{"ServerSideApply=true", "RespectIgnoreDifferences=true"}))
			name.commit(ctx, manifests(name))
			name.create(ctx, with(patch.Spec.IgnoreDifferences, "spec", "ignoreDifferences"), with(options, "spec", "syncPolicy", "syncOptions"))
			Eventually(ctx, name.state).Should(Equal(inSync))
			Expect(replicas(ctx, name)).To(Equal(map[string]int32{"kube-controller-manager": 2, "cluster-autoscaler": 2}))

			By("an outage")
			kubectl(ctx, "wait", "probeconfig", "prober", "-n", string(name), "--for=condition="+v1alpha1.ConditionExternalHealthy, "--timeout=1m")
			external.BreakNew(faultproxy.Reset)
			external.BreakOpen(faultproxy.Reset)
			outage := map[string]int32{"kube-controller-manager": 0, "cluster-autoscaler": 2}
			Eventually(ctx, replicas).WithArguments(name).Should(Equal(outage))
			Eventually(ctx, func() string {
				return kubectl(ctx, "get", "events", "-n", string(name), "--field-selector=reason=ScaledByOthers", "-o", "jsonpath={.items[*].note}{.items[*].message}")
			}).Should(ContainSubstring("field manager argocd-controller scaled it to 2"))
			name.expectNoDrift(ctx)
			Expect(replicas(ctx, name)).To(Equal(outage))

			By("a sync for another reason")
			changed := manifests(name)
			changed["deployments.yaml"] = strings.ReplaceAll(changed["deployments.yaml"], "image: one", "image: two")
			name.commit(ctx, changed)
			Eventually(ctx, name.state).Should(Equal(inSync))
			Expect(replicas(ctx, name)).To(Equal(outage))

			By("the end of the outage")
			external.BreakNew(faultproxy.None)
			Eventually(ctx, replicas).WithArguments(name).WithTimeout(specTime).Should(Equal(map[string]int32{"kube-controller-manager": 2, "cluster-autoscaler": 2}))
			Eventually(ctx, name.state).Should(Equal(inSync))
		}, NodeTimeout(2*specTime))
	}
}

// way is one by which the probed cluster is reached, with its Secret.
func way(ctx SpecContext, probed *cluster.Cluster, namespace application, name string) *faultproxy.Proxy {
	GinkgoHelper()
	proxy, err := faultproxy.Start(strings.TrimPrefix(probed.URL, "https://"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	config, err := clientcmd.LoadFromFile(probed.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range config.Clusters {
		c.Server = "https://" + proxy.Addr()
	}
	text, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	_, _ = c.Kubectl(ctx, "create", "namespace", string(namespace)) // which may be there
	dir := GinkgoT().TempDir()
	write(dir, "kubeconfig", string(text))
	kubectl(ctx, "create", "secret", "generic", name, "-n", string(namespace), "--from-file="+dir+"/kubeconfig")
	return proxy
}

// manifests are a ProbeConfig, what it needs, and its dependents.
func manifests(namespace application) map[string]string {
	files := map[string]string{"account.yaml": account, "deployments.yaml": deployments, "config.yaml": config}
	for name, text := range maps.All(files) {
		files[name] = strings.ReplaceAll(text, "NAMESPACE", string(namespace))
	}
	return files
}

const account = `
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
  template: {metadata: {labels: {app: dependent}}, spec: {containers: [{name: main, image: one}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cluster-autoscaler, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: main, image: one}]}}
`

// config is in a later wave than what it needs.
const config = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ProbeConfig
metadata:
  name: prober
  namespace: NAMESPACE
  annotations: {argocd.argoproj.io/sync-wave: "1"}
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

func replicas(ctx context.Context, namespace application) (map[string]int32, error) {
	var list appsv1.DeploymentList
	err := admin.List(ctx, &list, client.InNamespace(string(namespace)))
	all := map[string]int32{}
	for _, d := range list.Items {
		all[d.Name] = *d.Spec.Replicas
	}
	return all, err
}
