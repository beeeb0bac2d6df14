package differential

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/e2e/cluster"
)

// settle makes a world in which plans have something to say and nothing moves: a paused Guardrail keeps policies from
// acting, conditions are as they are since yesterday, so that no hold runs out between one judge and the next, and pods run.
func settle(ctx context.Context) {
	GinkgoHelper()
	Expect(h.Client.Create(ctx, decode("{kind: Guardrail, metadata: {name: still}, spec: {paused: true}}"))).To(Succeed())
	_, err := h.AddNodes(ctx, fleet, cluster.NodeOptions{Prefix: "fleet", Zones: 3})
	Expect(err).NotTo(HaveOccurred())
	heartbeats(ctx)
	Expect(h.Client.Create(ctx, &rbacv1.ClusterRoleBinding{ // tenants' accounts may do what most WeederConfigs need
		ObjectMeta: metav1.ObjectMeta{Name: "tenants"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
	})).To(Succeed())
	for _, name := range []string{"a", "b"} { // both behind etcd, and b alone
		meta := metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "a", "role": name}}
		Expect(h.Client.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}})).To(Succeed())
		Eventually(func(ctx context.Context) (corev1.PodPhase, error) {
			pod := &corev1.Pod{ObjectMeta: meta}
			err := h.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			return pod.Status.Phase, err
		}).WithContext(ctx).Should(Equal(corev1.PodRunning))
	}
	for name, selector := range map[string]map[string]string{"etcd": {"app": "a"}, "a": {"role": "b"}, "kube-apiserver": nil} {
		Expect(h.Client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80}}},
		})).To(Succeed())
	}
}

const fleet = 12

// heartbeats are the reporters', who must not fall silent during a long run.
func heartbeats(ctx context.Context) {
	GinkgoHelper()
	yesterday := time.Now().Add(-24 * time.Hour)
	for kind, sick := range map[corev1.NodeConditionType]int{"KernelDeadlock": 1, "KubeletUnhealthy": 4, "Other": 9} {
		for i := range fleet {
			status := corev1.ConditionFalse
			if i < sick {
				status = corev1.ConditionTrue
			}
			Expect(h.SetCondition(ctx, fmt.Sprintf("fleet-%d", i), kind, status, cluster.ConditionOptions{Transition: yesterday})).To(Succeed())
		}
	}
}

// decode reads an object of ours, without its apiVersion.
func decode(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &object.Object)).To(Succeed())
	object.SetAPIVersion("autohealer.resourcestack.com/v1alpha1")
	return object
}

// gates are the two that stand behind the schemas, as they are installed.
type gates struct {
	policies []client.Object
	webhook  client.Object
}

func installed(ctx context.Context) *gates {
	GinkgoHelper()
	g := &gates{}
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	Expect(h.Client.List(ctx, &policies)).To(Succeed())
	for i := range policies.Items {
		g.policies = append(g.policies, &policies.Items[i])
	}
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(h.Client.Get(ctx, client.ObjectKey{Name: "autohealer"}, webhook)).To(Succeed())
	webhook.Webhooks[0].ClientConfig.CABundle = nil // the manager publishes its own
	g.webhook = webhook
	return g
}

const (
	policySays  = "ValidatingAdmissionPolicy 'autohealer-"
	webhookSays = "admission webhook \"policies.autohealer.resourcestack.com\" denied the request"
)

// with has the API server ask the policies, the webhook, both or neither, and waits until it does so for every kind. Each
// kind's bad object breaks a portable rule, so either gate alone refuses it.
func (g *gates) with(ctx context.Context, policies, webhook bool) {
	GinkgoHelper()
	for _, policy := range g.policies {
		install(ctx, policy, policies)
	}
	install(ctx, g.webhook, webhook)
	for _, s := range subjects {
		saysOf := func(ctx context.Context, text string) string {
			if _, err := s.resource("default").Create(ctx, decode(text), dryRunCreate); err != nil {
				return err.Error()
			}
			return "created"
		}
		want := Equal("created")
		switch {
		case policies:
			want = ContainSubstring(policySays)
		case webhook:
			want = ContainSubstring(webhookSays)
		}
		Eventually(saysOf).WithContext(ctx).WithArguments(s.bad).Should(want, s.kind)
	}
	// With policies the bad objects don't get as far as the webhook; this one does, and without it passes.
	broken := "{kind: Guardrail, metadata: {name: broken}, spec: {rules: [{name: r, kinds: [ConditionSet], expression: object.spec.efect}]}}"
	Eventually(func(ctx context.Context) bool {
		_, err := subjects[len(subjects)-1].resource("").Create(ctx, decode(broken), dryRunCreate)
		return err != nil
	}).WithContext(ctx).Should(Equal(webhook), "whether the webhook is asked")
}

// install creates an object that isn't there, or deletes one that is.
func install(ctx context.Context, object client.Object, there bool) {
	GinkgoHelper()
	object.SetResourceVersion("")
	object.SetUID("")
	if there {
		Expect(client.IgnoreAlreadyExists(h.Client.Create(ctx, object.DeepCopyObject().(client.Object)))).To(Succeed())
	} else {
		Expect(client.IgnoreNotFound(h.Client.Delete(ctx, object.DeepCopyObject().(client.Object)))).To(Succeed())
	}
}

// schema installs a kind's schema as it is, or relaxed, and waits until it is in force: where a schema says the same as the
// rules, only without what it says of values does anything reach them.
func (s *subject) schema(ctx context.Context, relaxed bool) {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(extv1.AddToScheme(scheme)).To(Succeed())
	definitions, err := client.New(h.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	text, err := crds.FS.ReadFile("autohealer.resourcestack.com_" + s.plural + ".yaml")
	Expect(err).NotTo(HaveOccurred())
	wanted, stored := &extv1.CustomResourceDefinition{}, &extv1.CustomResourceDefinition{}
	Expect(yaml.Unmarshal(text, wanted)).To(Succeed())
	if relaxed {
		properties := wanted.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		properties["spec"] = s.relax(properties["spec"])
	}
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := definitions.Get(ctx, client.ObjectKeyFromObject(wanted), stored); err != nil {
			return err
		}
		stored.Spec.Versions = wanted.Spec.Versions
		return definitions.Update(ctx, stored)
	})).To(Succeed())
	Eventually(func(ctx context.Context) bool {
		_, err := s.resource("default").Create(ctx, decode(s.unfit), dryRunCreate)
		return isInvalid(err)
	}).WithContext(ctx).Should(Equal(!relaxed), "whether the schema of %s judges values", s.kind)
}

func (s *subject) relax(p extv1.JSONSchemaProps) extv1.JSONSchemaProps {
	p.XValidations, p.Minimum, p.Maximum, p.MinItems, p.MinProperties, p.MinLength, p.Pattern = nil, nil, nil, nil, nil, nil, ""
	p.Required = slices.DeleteFunc(p.Required, func(field string) bool { return slices.Contains(s.optional, field) })
	for name, property := range p.Properties {
		p.Properties[name] = s.relax(property)
	}
	if p.Items != nil && p.Items.Schema != nil {
		*p.Items.Schema = s.relax(*p.Items.Schema)
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
		*p.AdditionalProperties.Schema = s.relax(*p.AdditionalProperties.Schema)
	}
	return p
}
