package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	ourGroup = "autohealer.resourcestack.com"
	// bystanders is the namespace whose every write the audit policy keeps.
	bystanders = "bystanders"
)

var _ = Describe("What isn't of Autohealer's API group", func() {
	It("is asked about by nothing that is installed, but for who may change its record on a node", func(ctx SpecContext) {
		var mutating admissionregistrationv1.MutatingWebhookConfigurationList
		Expect(h.Client.List(ctx, &mutating)).To(Succeed())
		Expect(mutating.Items).To(BeEmpty(), "nobody's objects are changed on their way")

		var webhooks admissionregistrationv1.ValidatingWebhookConfigurationList
		Expect(h.Client.List(ctx, &webhooks)).To(Succeed())
		Expect(webhooks.Items).To(HaveLen(1))
		for _, webhook := range webhooks.Items[0].Webhooks {
			for _, rule := range webhook.Rules {
				expectOnlyOurs(rule)
			}
		}
		var policies admissionregistrationv1.ValidatingAdmissionPolicyList
		Expect(h.Client.List(ctx, &policies)).To(Succeed())
		Expect(len(policies.Items)).To(BeNumerically(">", len(specimens)))
		for _, policy := range policies.Items {
			if policy.Name == annotationPolicy {
				Expect(*policy.Spec.FailurePolicy).To(Equal(admissionregistrationv1.Ignore), "it never holds a node up")
				Expect(policy.Spec.MatchConditions).To(HaveLen(1))
				Expect(policy.Spec.MatchConditions[0].Expression).To(ContainSubstring(ourGroup+"/owned-taints"), "it asks only about changes of the record")
				continue
			}
			if policy.Name == "autohealer-webhook-configuration" {
				Expect(policy.Spec.MatchConstraints.ResourceRules).To(HaveExactElements(HaveField("ResourceNames", Equal([]string{"autohealer"}))), "the webhook's own configuration")
				continue
			}
			for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
				expectOnlyOurs(rule.RuleWithOperations)
			}
		}
	}, NodeTimeout(specTime))

	It("is written, with the webhook and while nobody answers at its address, and the audit log never names Autohealer", func(ctx SpecContext) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bystanders}}
		Expect(h.Client.Create(ctx, namespace)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, namespace)).To(Succeed()) })
		create(ctx, "asked-about", `{type: Bystanders, effect: NoSchedule, taintKey: example.com/bystanders, conditions: {KernelDeadlock: {status: true}}}`)
		writeBystanders(ctx)
		withUnreachableWebhook(ctx, func() { writeBystanders(ctx) })

		log, err := os.ReadFile(h.AuditLog)
		Expect(err).NotTo(HaveOccurred())
		asked, others := map[string]int{}, map[string]int{}
		for line := range bytes.Lines(log) {
			var event auditv1.Event
			if json.Unmarshal(line, &event) != nil || event.ObjectRef == nil {
				continue // the line that is just being written
			}
			resource := event.ObjectRef.Resource + "." + event.ObjectRef.APIGroup
			switch {
			case annotated(&event):
				asked[resource]++
				Expect(event.ObjectRef.APIGroup).To(Equal(ourGroup), "the webhook was asked about %s", line)
			case event.ObjectRef.APIGroup != ourGroup:
				others[resource]++
			}
		}
		Expect(asked).To(HaveKey("conditionsets."+ourGroup), "the log would tell")
		for _, resource := range []string{"configmaps.", "pods.", "nodes.", "leases.coordination.k8s.io", "deployments.apps"} {
			Expect(others[resource]).To(BeNumerically(">=", 6), "%s: two rounds of create, update, delete", resource)
		}
	}, NodeTimeout(specTime))
})

func expectOnlyOurs(rule admissionregistrationv1.RuleWithOperations) {
	GinkgoHelper()
	Expect(rule.APIGroups).To(Equal([]string{ourGroup}))
	Expect(rule.Operations).To(ConsistOf(admissionregistrationv1.Create, admissionregistrationv1.Update))
	for _, resource := range rule.Resources {
		Expect(resource).NotTo(ContainSubstring("*"))
		Expect(resource).NotTo(ContainSubstring("/"), "status is written while the webhook is down")
	}
}

// writeBystanders creates, changes and deletes objects that are none of Autohealer's business.
func writeBystanders(ctx context.Context) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "bystander", Namespace: bystanders}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}
	labels := map[string]string{"app": "bystander"}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta},
		&corev1.Pod{ObjectMeta: meta, Spec: pod},
		&coordinationv1.Lease{ObjectMeta: meta},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bystander"}},
	} {
		Expect(h.Client.Create(ctx, object)).To(Succeed())
		Expect(h.Client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)))).To(Succeed())
		Expect(h.Client.Delete(ctx, object, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(ctx, func(ctx context.Context) bool {
			return apierrors.IsNotFound(h.Client.Get(ctx, client.ObjectKeyFromObject(object), object))
		}).Should(BeTrue())
	}
}

// annotated: the webhook leaves annotations in the audit log for whatever it is asked about.
func annotated(event *auditv1.Event) bool {
	for key := range event.Annotations {
		if strings.Contains(key, ourGroup) {
			return true
		}
	}
	return false
}
