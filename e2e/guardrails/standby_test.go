package guardrails

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("A standby", func() {
	const standby = cluster.Component("standby")

	It("judges as the leader does: by the same rules, limits, exceptions and facts", func(ctx SpecContext) {
		Expect(w.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(w.StopComponent(standby)).To(Succeed())
			Expect(w.StopComponent(harness.Manager)).To(Succeed())
			Expect(w.StartManager(ctx)).To(Succeed())
		})
		Expect(w.StartManager(ctx, "--leader-elect")).To(Succeed())
		_, port, err := net.SplitHostPort(cluster.FreeAddress())
		Expect(err).NotTo(HaveOccurred())
		Expect(w.StartReplica(ctx, standby, "--leader-elect", "--webhook-port="+port)).To(Succeed())

		nodes := w.AddNodes(ctx, 4, cluster.NodeOptions{Prefix: "standby"})
		for _, node := range nodes {
			w.Report(ctx, node, "StandbyBroken", corev1.ConditionTrue)
		}
		put(ctx, "standby-rule", rule("r", "!object.metadata.name.startsWith('standby-refused')", "exceptable: true"))
		put(ctx, "standby-limit", "{limits: {maxTaintedNodes: 2}}")
		lifted := fixture.NewSet("standby-refused-lifted", w.Key("standby"), repel, "StandbyLifted")
		except(ctx, newException("standby", lifted, time.Hour, "standby-rule/r"))

		kinds := map[client.Object]string{
			fixture.NewSet("standby-refused", w.Key("standby"), repel, "StandbyBroken"): "ConditionSet",
			fixture.NewSet("standby-many", w.Key("standby"), repel, "StandbyBroken"):    "ConditionSet",
			fixture.NewSet("standby-healthy", w.Key("standby"), evict, "Ready"):         "ConditionSet",
			fixture.NewSet("standby-new", w.Key("standby"), repel, "StandbyNobodys"):    "ConditionSet",
			lifted: "ConditionSet",
			newRail("standby-strict", rule("s", "object.spec.effect != 'NoSchedule'")): "Guardrail",
			newRail("standby-typo", rule("s", "object.spec.efect != 'NoSchedule'")):    "Guardrail",
			newRail("standby-loose", "{limits: {maxTaintedNodes: 90}}"):                "Guardrail",
		}
		allowed := 0
		for object, kind := range kinds {
			Eventually(func(g Gomega) {
				byLeader := review(ctx, g, leaderURL(ctx), kind, object)
				g.Expect(byLeader.Result.Message + fmt.Sprint(byLeader.Warnings)).NotTo(BeEmpty())
				g.Expect(review(ctx, g, "https://127.0.0.1:"+port+"/validate", kind, object)).To(Equal(byLeader))
				if byLeader.Allowed {
					allowed++
				}
			}).Should(Succeed(), "both should say the same of %s", object.GetName())
		}
		Expect(allowed).To(And(BeNumerically(">", 0), BeNumerically("<", len(kinds))), "verdicts of both sorts should be compared")
	})
})

func leaderURL(ctx context.Context) string {
	GinkgoHelper()
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	Expect(w.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, &configuration)).To(Succeed())
	return *configuration.Webhooks[0].ClientConfig.URL
}

// review asks one replica's webhook whether an object may be created, as the API server does.
func review(ctx context.Context, g Gomega, url, kind string, object client.Object) *admissionv1.AdmissionResponse {
	gvk := v1alpha1.GroupVersion.WithKind(kind)
	object = object.DeepCopyObject().(client.Object)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	raw, err := json.Marshal(object)
	g.Expect(err).NotTo(HaveOccurred())
	asked, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "review", Kind: metav1.GroupVersionKind(gvk), Name: object.GetName(), Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(asked))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	// Whose certificate it is isn't what is asked here.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	var answer admissionv1.AdmissionReview
	g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	g.Expect(answer.Response).NotTo(BeNil())
	return answer.Response
}
