//go:build linux

package envoygateway

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// detection has all settings that an OutlierPolicy has, as Envoy writes them.
const detection = `{"consecutive_5xx": 3, "interval": "0.200s", "base_ejection_time": "2s", "max_ejection_time": "2s", "max_ejection_time_jitter": "0.100s",
  "split_external_local_origin_errors": true, "consecutive_local_origin_failure": 4, "max_ejection_percent": 50, "always_eject_one_host": true}`

// patch applies an EnvoyPatchPolicy, named web, that has some clusters detect outliers.
func (s *site) patch(ctx context.Context, clusters ...string) {
	GinkgoHelper()
	manifest := fmt.Sprintf(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: web, namespace: %s}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: web}
  type: JSONPatch
  jsonPatches:
`, s.namespace)
	for _, c := range clusters {
		manifest += fmt.Sprintf(`
  - {type: type.googleapis.com/envoy.config.cluster.v3.Cluster, name: %[1]s, operation: {op: add, path: /outlier_detection, value: %[2]s}}
  - {type: type.googleapis.com/envoy.config.cluster.v3.Cluster, name: %[1]s, operation: {op: add, path: /common_lb_config/healthy_panic_threshold, value: {value: 20}}}
`, c, detection)
	}
	apply(ctx, manifest)
}

// answers says whether all requests are answered by the backends, which come later than the listener.
func (s *site) answers(e *envoy.Envoy) func() bool {
	return func() bool {
		for range 2 * len(s.backends) {
			if status, _ := e.Get(s.listener()); status != 200 {
				return false
			}
		}
		return len(e.Hosts(s.cluster())) == len(s.backends)
	}
}

// What Autohealer could rely on.
var _ = Describe("An EnvoyPatchPolicy", func() {
	It("has Envoy detect outliers with every setting, eject a failing backend and take it back", func(ctx SpecContext) {
		s := newSite(ctx, "patched", 3)
		e := s.proxy(ctx)
		Eventually(s.answers(e)).Should(BeTrue())
		Expect(e.Threshold(s.cluster())).To(BeZero(), "Envoy Gateway itself detects nothing")

		By("patching all clusters but one that isn't there, and saying so")
		s.patch(ctx, "httproute/"+s.namespace+"/gone/rule/0", s.cluster())
		Eventually(ctx, verdict(ctx, s.namespace, "web", "Programmed")).Should(Equal("False ResourceNotFound"))
		Expect(verdict(ctx, s.namespace, "web", "Accepted")()).To(Equal("True Accepted"))
		Eventually(func() int { return e.Threshold(s.cluster()) }).Should(Equal(3))

		s.patch(ctx, s.cluster())
		Eventually(ctx, verdict(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
		var has struct {
			OutlierDetection json.RawMessage `json:"outlier_detection"`
			CommonLBConfig   struct {
				HealthyPanicThreshold json.RawMessage `json:"healthy_panic_threshold"`
			} `json:"common_lb_config"`
		}
		Expect(json.Unmarshal(e.Cluster(s.cluster()), &has)).To(Succeed())
		Expect(has.OutlierDetection).To(MatchJSON(detection))
		Expect(has.CommonLBConfig.HealthyPanicThreshold).To(MatchJSON(`{"value": 20}`))

		By("ejecting the backend that fails")
		s.backends[1].Answer(500)
		ejected := func() []string { e.Get(s.listener()); return e.Ejected(s.cluster()) }
		Eventually(ejected).Should(ConsistOf(s.backends[1].Address))
		s.backends[1].Answer(200)
		Eventually(ejected).Should(BeEmpty())

		By("detecting nothing once it is deleted")
		_, err := h.Kubectl(ctx, "delete", "envoypatchpolicy", "web", "-n", s.namespace)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() int { return e.Threshold(s.cluster()) }).Should(BeZero())
	}, NodeTimeout(4*harness.Within))

	It("reaches Envoy once that has waited for endpoints, and stays where Envoy Gateway or Envoy restarts", func(ctx SpecContext) {
		s := newSite(ctx, "restarted", 2)
		s.patch(ctx, s.cluster())
		e := s.proxy(ctx)
		threshold := func() int { return e.Threshold(s.cluster()) }
		Eventually(threshold).Should(Equal(3))

		policy, err := patchPolicy(ctx, s.namespace, "web")
		Expect(err).NotTo(HaveOccurred())
		Eventually(s.answers(e)).Should(BeTrue())
		latencies := map[string]time.Duration{}
		change := func(what string, n int, also string) {
			GinkgoHelper()
			began := time.Now()
			edit := fmt.Appendf(nil, `[%s{"op": "replace", "path": "/spec/jsonPatches/0/operation/value/consecutive_5xx", "value": %d}]`, also, n)
			Expect(h.Client.Patch(ctx, policy, client.RawPatch(types.JSONPatchType, edit))).To(Succeed())
			Eventually(func() int {
				status, _ := e.Get(s.listener())
				Expect(status).To(Equal(200), "the cluster that is replaced goes on")
				return threshold()
			}).WithPolling(time.Millisecond).Should(Equal(n))
			latencies[what] = time.Since(began).Round(time.Millisecond)
		}
		change("as it is", 4, "")
		Expect(latencies["as it is"]).To(BeNumerically("~", 15*time.Second, 3*time.Second), "Envoy waits for endpoints that nobody sends again")
		change("waiting for a second", 8, fmt.Sprintf(`{"op": "add", "path": "/spec/jsonPatches/-", "value": {"type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
			"name": %q, "operation": {"op": "add", "path": "/eds_cluster_config/eds_config/initial_fetch_timeout", "value": "1s"}}}, `, s.cluster()))
		Expect(latencies["waiting for a second"]).To(BeNumerically("<", 5*time.Second))
		AddReportEntry("from a change of an EnvoyPatchPolicy until Envoy runs with it", latencies)

		Eventually(s.answers(e)).Should(BeTrue())
		churn := e.Churn()
		Expect(h.StopComponent(program)).To(Succeed())
		Expect(threshold()).To(Equal(8))
		g.start(ctx, patches)
		Eventually(ctx, verdict(ctx, s.namespace, "web", "Programmed")).Should(Equal("True Programmed"))
		Consistently(threshold).Should(Equal(8))
		Expect(e.Churn()).To(Equal(churn), "no cluster is made anew, so that who is ejected stays so")
		e.Stop()
		e = s.proxy(ctx)
		Eventually(threshold).Should(Equal(8))
	}, NodeTimeout(4*harness.Within))

	It("is refused where they are switched off, and says so", func(ctx SpecContext) {
		Expect(h.StopComponent(program)).To(Succeed())
		g.start(ctx, noPatches)
		s := newSite(ctx, "refused", 1)
		s.may(ctx)
		s.detect(ctx, 3)
		Eventually(s.unwritten(ctx)).Should(BeFalse())
		Expect(h.StopComponent(program)).To(Succeed()) // it doesn't watch them, and says so of what it finds when something else has changed
		g.start(ctx, noPatches)
		Eventually(ctx, verdict(ctx, s.namespace, written, "Accepted")).Should(Equal("False Disabled"))
		Eventually(s.stands(ctx, "Programmed")).Should(HavePrefix("False Disabled Envoy Gateway takes no EnvoyPatchPolicies: set extensionApis.enableEnvoyPatchPolicy: true"))
		e := s.proxy(ctx)
		Eventually(s.answers(e)).Should(BeTrue())
		Expect(e.Threshold(s.cluster())).To(BeZero())

		By("switching them on")
		Expect(h.StopComponent(program)).To(Succeed())
		g.start(ctx, patches)
		Eventually(func() int { return e.Threshold(s.cluster()) }).Should(Equal(3))
		Eventually(s.stands(ctx, "Programmed")).Should(HavePrefix("True Programmed"))
	}, NodeTimeout(4*harness.Within))
})
