package healthcheckregistration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// looks are as many as there are in ten minutes by the default sync period.
const looks = 20

var _ = Describe("while nothing changes", func() {
	It("nothing is read and nothing written, neither in the seed nor in shoots", func(ctx SpecContext) {
		By("having the shoot reached by a proxy that counts")
		_, err := shoot.KubectlWithInput(ctx, strings.NewReader(account), "apply", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		direct, err := shoot.ServiceAccountKubeconfig(ctx, "default", "checker")
		Expect(err).NotTo(HaveOccurred())
		toShoot := counted(shoot.URL, shoot.CACert)
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(toShoot.Kubeconfig(direct, kubeconfig)).To(Succeed())
		content, err := os.ReadFile(kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		namespace := place(ctx)
		Expect(h.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener"}, Data: map[string][]byte{"kubeconfig": content},
		})).To(Succeed())

		By("having the manager reach the seed by another")
		toSeed := counted(h.URL, h.CACert)
		directly, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		byProxy := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(toSeed.Kubeconfig(directly, byProxy)).To(Succeed())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { restartManager(ctx) }, NodeTimeout(specTime))
		Expect(h.StartManager(ctx, "--kubeconfig="+byProxy)).To(Succeed())

		setPhase(ctx, namespace, "dial", "Up")
		setPhaseInShoot(ctx, namespace, "Up")
		putNode(ctx, "quiet-1")
		putTargets(ctx, namespace)
		register(ctx, namespace, about(gadget, namespace, `shootKubeconfig: {secretName: gardener}
checks: [`+checkOf("Dialled", "dial")+`,
  {name: system, conditionType: Dialled, cluster: Shoot, object: {apiVersion: v1, kind: ConfigMap, namespace: "'default'", name: target.metadata.namespace}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}},
  {name: nodes, conditionType: EveryNodeReady, evaluate: {nodes: {min: 1}}}]`))
		Eventually(statusesOf(ctx, namespace, "Dialled")).Should(Equal(all(isTrue)))
		Eventually(statusesOf(ctx, namespace, "EveryNodeReady")).Should(Equal(all(isTrue)))
		Eventually(statusOf(ctx, namespace, "TargetsHealthy"), 30*time.Second).Should(HavePrefix("True AllHealthy"))

		By("counting")
		ofChecks := func() map[string]int { return forChecks(toSeed.Asked()) }
		Eventually(ofChecks, time.Minute, 15*time.Second).Should(BeEmpty(), "the last counts are in the status after ten seconds")
		toShoot.Asked()
		began := time.Now()
		Consistently(func() []map[string]int { return []map[string]int{ofChecks(), toShoot.Asked()} }, looks*5*time.Second, time.Second).
			Should(HaveEach(BeEmpty()), "what was asked of the seed, and of the shoot")
		AddReportEntry("quiet", fmt.Sprintf("%d targets with 3 checks each for %s", targetsOfOutage, time.Since(began).Round(time.Second)))

		By("changing one thing in the shoot")
		_, err = shoot.Kubectl(ctx, "cordon", "quiet-1")
		Expect(err).NotTo(HaveOccurred())
		Eventually(condition(ctx, gadget, namespace, "EveryNodeReady"), 4*time.Second).Should(is("Unknown", "HealthCheckProgressing", "cordoned: quiet-1"), "sooner than the next look")
	}, NodeTimeout(3*specTime))
})

// forChecks leaves out what the manager asks for itself, whatever registrations there are.
func forChecks(asked map[string]int) map[string]int {
	maps.DeleteFunc(asked, func(request string, _ int) bool {
		return !slices.ContainsFunc([]string{"/gadgets", "/configmaps", "/secrets", "/healthcheckregistrations", "customresourcedefinitions/gadgets"}, func(part string) bool {
			return strings.Contains(request, part)
		})
	})
	return asked
}

// account may read all of a shoot.
const account = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: checker, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: checker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: checker, namespace: default}]
`

func counted(apiServer string, ca []byte) *faultproxy.Watches {
	GinkgoHelper()
	proxy, err := faultproxy.StartWatches(apiServer, ca)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	return proxy
}
