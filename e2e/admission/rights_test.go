package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// user is whom a request is made as.
type user struct {
	name   string
	groups []string
}

var manager = serviceAccount(harness.Namespace, harness.ServiceAccount)

func serviceAccount(namespace, name string) user {
	return user{
		name:   "system:serviceaccount:" + namespace + ":" + name,
		groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

func kubelet(node string) user {
	return user{name: "system:node:" + node, groups: []string{"system:nodes", "system:authenticated"}}
}

// may asks the API server, as `kubectl auth can-i` does. resource may have a subresource after a slash.
func may(ctx context.Context, u user, verb, group, resource, namespace, name string) bool {
	GinkgoHelper()
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.name, Groups: u.groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name},
	}}
	Expect(h.Client.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}

// as is a client with somebody else's rights.
func as(u user) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(h.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: u.name, Groups: u.groups}
	c, err := client.New(config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

const (
	ours  = "autohealer.resourcestack.com"
	admin = "admissionregistration.k8s.io"
	own   = harness.Namespace
	// target is a namespace in which Autohealer was let protect an API server.
	target = "default"
)

// access is one right, or one that is missing.
type access struct{ verbs, group, resource, namespace, name string }

func (a access) String() string {
	return fmt.Sprintf("%s %s %s %s %s", a.verbs, a.group, a.resource, a.namespace, a.name)
}

var _ = Describe("The manager's account", Label("versions"), func() {
	It("may do what it needs", func(ctx SpecContext) {
		Expect(h.LetProbe(ctx, target)).To(Succeed())
		for _, a := range []access{
			{"get list watch patch", ours, "conditionsets", "", ""},
			{"patch", ours, "conditionsets/status", "", ""},
			{"edit-owned-taints", ours, "conditionsets", "", ""},
			{"get list watch patch", ours, "probeconfigs", "", ""},
			{"patch", ours, "probeconfigs/status", "", ""},
			{"get", "", "secrets", target, "a-kubeconfig"},
			{"get patch", "apps", "deployments", target, ""},
			{"get patch", "apps", "statefulsets", target, ""},
			{"get update", "apps", "deployments/scale", target, ""},
			{"get update", "apps", "statefulsets/scale", target, ""},
			{"get list watch patch", "", "nodes", "", ""},
			{"list", "", "pods", "", ""},
			{"get list watch", "apps", "daemonsets", "", ""},
			{"get list watch", "apps", "deployments", "", ""},
			{"get list watch", "apps", "statefulsets", "", ""},
			{"create patch", "events.k8s.io", "events", "default", ""},
			{"get watch update", "", "secrets", own, "autohealer-webhook-cert"},
			{"create", "", "secrets", own, ""},
			{"get update", "", "configmaps", own, "autohealer-envoy-clusters"},
			{"get update", "", "configmaps", own, "autohealer-envoys"},
			{"get update", "", "configmaps", own, "autohealer-evictions"},
			{"create", "", "configmaps", own, ""},
			{"get update", "coordination.k8s.io", "leases", own, "autohealer-manager"},
			{"list watch", "coordination.k8s.io", "leases", "kube-node-lease", ""},
			{"get patch", admin, "validatingwebhookconfigurations", "", "autohealer"},
		} {
			for _, verb := range strings.Fields(a.verbs) {
				Expect(may(ctx, manager, verb, a.group, a.resource, a.namespace, a.name)).To(BeTrue(), "%s of %s", verb, a)
			}
		}
	}, NodeTimeout(specTime))

	DescribeTable("may change the CA bundle in its webhook's configuration, and nothing by which requests would go elsewhere",
		func(ctx SpecContext, allowed bool, modify func(*admissionregistrationv1.ValidatingWebhookConfiguration)) {
			configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			Expect(h.Client.Get(ctx, types.NamespacedName{Name: "autohealer"}, configuration)).To(Succeed())
			before := configuration.DeepCopy()
			modify(configuration)
			patch := client.MergeFrom(before)
			err := as(manager).Patch(ctx, configuration.DeepCopy(), patch, client.DryRunAll)
			if allowed {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring("of the webhook configuration autohealer system:serviceaccount:autohealer-system:autohealer-manager may only change caBundle")))
			}
			Expect(h.Client.Patch(ctx, configuration, patch, client.DryRunAll)).To(Succeed(), "an admin may")
		},
		Entry("the CA bundle", true, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.CABundle = slices.Concat(c.Webhooks[0].ClientConfig.CABundle, c.Webhooks[0].ClientConfig.CABundle)
		}),
		Entry("no CA bundle", true, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.CABundle = nil
		}),
		Entry("which installation it is", true, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, "autohealer.resourcestack.com/installation", "another")
		}),
		Entry("whom it calls", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.URL = new("https://192.0.2.1/validate")
		}),
		Entry("whom it calls, as a Service", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.URL = nil
			c.Webhooks[0].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "spy"}
		}),
		Entry("what it is asked about", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].Rules = append(c.Webhooks[0].Rules, admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			})
		}),
		Entry("whether it fails open", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		}),
		Entry("when it is asked", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].MatchConditions = nil
		}),
		Entry("a selector that there was none of", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}),
		Entry("another webhook", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			spy := c.Webhooks[0].DeepCopy()
			spy.Name = "spy.example.com"
			c.Webhooks = append(c.Webhooks, *spy)
		}),
		Entry("no webhook", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = nil }),
		Entry("an owner, with which it would go", false, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "4c1ff7f7-6e1b-4b7c-9a2f-3d0e0a7c7a11"}}
		}),
	)

	It("may do nothing that it needn't", func(ctx SpecContext) {
		for _, a := range []access{
			{"create update delete deletecollection", ours, "conditionsets", "", ""},
			{"get update", ours, "conditionsets/status", "", ""},
			{"update", ours, "conditionsets/finalizers", "", ""},
			{"create update delete deletecollection", "", "nodes", "", ""},
			{"get patch update", "", "nodes/status", "", ""},
			{"get create", "", "nodes/proxy", "", ""},
			{"create update patch deletecollection", "", "pods", "default", ""},
			{"create", "", "events", own, ""},
			{"create update delete deletecollection", ours, "probeconfigs", "", ""},
			{"create update delete patch deletecollection", ours, "weederconfigs", "", ""},
			{"create update delete patch deletecollection", ours, "guardrails", "", ""},
			{"create update delete patch deletecollection", ours, "guardrailexceptions", "", ""},
			{"create get", "", "pods/exec", "default", ""},
			{"get", "", "pods/log", "default", ""},
			{"get list watch create update patch delete", "", "secrets", "kube-system", ""},
			{"list watch create update patch delete", "", "secrets", target, ""},
			{"list watch update patch delete", "", "secrets", own, "somebody-elses"},
			{"list watch delete deletecollection", "", "secrets", own, ""},
			{"patch delete", "", "secrets", own, "autohealer-webhook-cert"},
			{"get update patch delete", "", "configmaps", own, "somebody-elses"},
			{"get list watch update patch delete", "", "configmaps", own, ""},
			{"patch delete", "", "configmaps", own, "autohealer-envoy-clusters"},
			{"patch delete", "", "configmaps", own, "autohealer-envoys"},
			{"patch delete", "", "configmaps", own, "autohealer-evictions"},
			{"get list watch create update patch delete", "", "configmaps", "kube-system", ""},
			{"create", "", "serviceaccounts/token", own, ""},
			{"impersonate", "", "serviceaccounts", own, ""},
			{"impersonate", "", "users", "", ""},
			{"create update patch delete deletecollection", "apps", "deployments", "kube-system", ""},
			{"get update patch", "apps", "deployments/scale", "kube-system", ""},
			{"create update delete deletecollection", "apps", "deployments", target, ""},
			{"patch", "apps", "deployments/scale", target, ""},
			{"get patch update", "apps", "replicasets/scale", target, ""},
			{"create update patch delete", "apps", "daemonsets", "kube-system", ""},
			{"patch", "coordination.k8s.io", "leases", own, "autohealer-manager"},
			{"update patch delete", "coordination.k8s.io", "leases", own, "somebody-elses"},
			{"get create update patch delete", "coordination.k8s.io", "leases", "kube-node-lease", ""},
			{"get update", "coordination.k8s.io", "leases", "kube-system", ""},
			{"create update delete", admin, "validatingwebhookconfigurations", "", "autohealer"},
			{"get patch update delete", admin, "validatingwebhookconfigurations", "", "somebody-elses"},
			{"create patch update delete", admin, "mutatingwebhookconfigurations", "", ""},
			{"create patch update delete", admin, "validatingadmissionpolicies", "", "autohealer-node-annotations"},
			{"create patch update delete", "apiextensions.k8s.io", "customresourcedefinitions", "", ""},
			{"create patch update bind escalate", "rbac.authorization.k8s.io", "clusterroles", "", ""},
			{"create patch update delete", "rbac.authorization.k8s.io", "clusterrolebindings", "", ""},
			{"create patch update", "certificates.k8s.io", "certificatesigningrequests", "", ""},
			{"create patch delete", "", "namespaces", "", ""},
		} {
			for _, verb := range strings.Fields(a.verbs) {
				Expect(may(ctx, manager, verb, a.group, a.resource, a.namespace, a.name)).To(BeFalse(), "%s of %s", verb, a)
			}
		}
	}, NodeTimeout(specTime))

	It("is all that some users see and others write", func(ctx SpecContext) {
		viewer, editor := serviceAccount("default", "viewer"), serviceAccount("default", "editor")
		bind(ctx, viewer, "view")
		bind(ctx, editor, "autohealer-editor")
		Eventually(ctx, func(ctx context.Context) bool { return may(ctx, viewer, "list", ours, "conditionsets", "", "") }).Should(BeTrue(), "view has it, by aggregation")
		Eventually(ctx, func(ctx context.Context) bool { return may(ctx, editor, "create", ours, "conditionsets", "", "") }).Should(BeTrue())
		for _, u := range []user{viewer, editor} {
			for _, verb := range []string{"update", "patch"} {
				Expect(may(ctx, u, verb, ours, "conditionsets/status", "", "")).To(BeFalse(), "status is the manager's: %s %s", u.name, verb)
			}
			Expect(may(ctx, u, "edit-owned-taints", ours, "conditionsets", "", "")).To(BeFalse(), u.name)
		}
		Expect(may(ctx, viewer, "create", ours, "conditionsets", "", "")).To(BeFalse())
	}, NodeTimeout(specTime))
})

var _ = Describe("The record of owned taints on a node", Label("versions"), func() {
	const (
		record  = "autohealer.resourcestack.com/owned-taints"
		refusal = "only Autohealer changes the annotation " + record
	)
	annotate := func(value string) client.Patch {
		return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, record, value))
	}
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

	It("can't be written by the node or by other accounts that may write nodes", func(ctx SpecContext) {
		name := nodes(ctx, 1, "forged")[0]
		other := serviceAccount("default", "node-writer")
		bind(ctx, other, nodeWriter(ctx))
		Eventually(ctx, func(ctx context.Context) bool { return may(ctx, other, "patch", "", "nodes", "", name) }).Should(BeTrue())
		Expect(h.Client.Patch(ctx, node(name), annotate(`"{}"`))).To(Succeed(), "an admin may")
		for _, u := range []user{kubelet(name), other} {
			writer := as(u)
			for _, value := range []string{`"forged"`, `""`, `null`} {
				Expect(writer.Patch(ctx, node(name), annotate(value))).To(MatchError(And(ContainSubstring(refusal), ContainSubstring(u.name), ContainSubstring("edit-owned-taints"))), "%s writes %s", u.name, value)
				Expect(writer.Status().Patch(ctx, node(name), annotate(value))).To(MatchError(ContainSubstring(refusal)), "%s writes %s through nodes/status", u.name, value)
			}
			var stored corev1.Node
			Expect(writer.Get(ctx, types.NamespacedName{Name: name}, &stored)).To(Succeed())
			Expect(stored.Annotations).To(HaveKeyWithValue(record, "{}"))
			stored.Annotations[record] = "forged"
			Expect(writer.Update(ctx, &stored)).To(MatchError(ContainSubstring(refusal)))
		}
		fresh := node("forged-fresh")
		fresh.Annotations = map[string]string{record: "forged"}
		Expect(as(kubelet(fresh.Name)).Create(ctx, fresh)).To(MatchError(ContainSubstring(refusal)))
	}, NodeTimeout(specTime))

	It("doesn't stand in the way of what kubelets write", func(ctx SpecContext) {
		name := nodes(ctx, 1, "heartbeat")[0]
		Expect(h.Client.Patch(ctx, node(name), annotate(`"{}"`))).To(Succeed())
		writer := as(kubelet(name))
		heartbeat := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":"2030-01-01T00:00:00Z"}]}}`
		Expect(writer.Status().Patch(ctx, node(name), client.RawPatch(types.StrategicMergePatchType, []byte(heartbeat)))).To(Succeed())
		labels := `{"metadata":{"labels":{"node.kubernetes.io/instance-type":"large"},"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}}}`
		Expect(writer.Patch(ctx, node(name), client.RawPatch(types.MergePatchType, []byte(labels)))).To(Succeed())
		fresh := node("heartbeat-fresh")
		Expect(as(kubelet(fresh.Name)).Create(ctx, fresh)).To(Succeed())
		Expect(h.Client.Delete(ctx, fresh)).To(Succeed())
	}, NodeTimeout(specTime))
})

// bind gives a service account a cluster role for as long as the spec lasts.
func bind(ctx context.Context, u user, role string) {
	GinkgoHelper()
	parts := strings.Split(u.name, ":")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + parts[3]},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: parts[2], Name: parts[3]}},
	}
	Expect(h.Client.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, binding)).To(Succeed()) })
}

// nodeWriter is a role as other node operators have it.
func nodeWriter(ctx context.Context) string {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-node-writer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}}},
	}
	Expect(h.Client.Create(ctx, role)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(h.Client.Delete(ctx, role)).To(Succeed()) })
	return role.Name
}
