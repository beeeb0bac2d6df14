package config_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// limitedPriorities is what GKE's API servers go by: pods of these priorities only where a quota speaks of them.
const limitedPriorities = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [system-node-critical, system-cluster-critical]
`

func TestTheManagersPodsAreMadeWhereTheirPriorityIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server")
	}
	g := NewWithT(t)
	admission := filepath.Join(t.TempDir(), "admission.yaml")
	g.Expect(os.WriteFile(admission, []byte(limitedPriorities), 0o600)).To(Succeed())
	c, err := cluster.Start(t.Context(), cluster.Options{
		ControllerManager: true,
		ExtraArgs:         map[cluster.Component][]string{cluster.APIServer: {"--admission-control-config-file=" + admission}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })

	_, err = c.Kubectl(t.Context(), "apply", "-k", "default")
	g.Expect(err).NotTo(HaveOccurred())
	pods := kubernetes.NewForConfigOrDie(c.Config).CoreV1().Pods("autohealer-system")
	g.Eventually(func() ([]corev1.Pod, error) {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}, "60s", "200ms").Should(HaveLen(2))
}
