package config_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/config"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/internal/kinds"
)

const manager = "system:serviceaccount:autohealer-system:autohealer-manager"

// TestInstall starts one API server for all of it: kubectl apply -k is slow enough once.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server")
	}
	g := NewWithT(t)
	g.Expect(errors.Join(readAll("."), readAll("../crds"))).To(Succeed())
	c, err := cluster.Start(t.Context(), cluster.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })

	_, err = c.Kubectl(t.Context(), "apply", "-k", "default")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.Kubectl(t.Context(), "wait", "--for=condition=Established", "--timeout=30s", "crd/conditionsets.autohealer.resourcestack.com")
	g.Expect(err).NotTo(HaveOccurred(), "the schema and the cost of its CEL rules are accepted")

	t.Run("a second apply would change nothing", func(t *testing.T) {
		_, err := c.Kubectl(t.Context(), "diff", "-k", "default")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	})
	t.Run("without the manager its webhook refuses, and says why", func(t *testing.T) {
		_, err := c.Kubectl(t.Context(), "apply", "-f", "samples/conditionset-1.yaml")
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`failed calling webhook "policies.autohealer.resourcestack.com"`)))
	})
	t.Run("rights", func(t *testing.T) { testRights(t, kubernetes.NewForConfigOrDie(c.Config)) })
	t.Run("roles", func(t *testing.T) { testRoles(t, kubernetes.NewForConfigOrDie(c.Config)) })
	t.Run("the ownership record", func(t *testing.T) { testOwnershipRecord(t, c.Config) })
	t.Run("network policy", func(t *testing.T) {
		_, err := c.Kubectl(t.Context(), "apply", "-k", "network-policy")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		testNetworkPolicy(t, kubernetes.NewForConfigOrDie(c.Config))
	})
	t.Run("samples", func(t *testing.T) {
		g := NewWithT(t)
		_, err := c.Kubectl(t.Context(), "delete", "validatingwebhookconfiguration", "autohealer")
		g.Expect(err).NotTo(HaveOccurred())
		for _, samples := range []string{"samples", "samples/npd", "samples/tenant"} {
			_, err := c.Kubectl(t.Context(), "apply", "-k", samples, "--dry-run=server")
			g.Expect(err).NotTo(HaveOccurred())
		}
		refused, err := filepath.Glob("samples/refused/*.yaml")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(refused).NotTo(BeEmpty())
		for _, sample := range refused {
			objects, err := config.Objects(os.DirFS("."), sample)
			g.Expect(err).NotTo(HaveOccurred())
			if objects[0].GetKind() == "Guardrail" { // whose rules only the webhook can compile
				continue
			}
			g.Eventually(func() error {
				_, err := c.Kubectl(t.Context(), "apply", "-f", sample, "--dry-run=server")
				return err
			}, "20s").Should(MatchError(ContainSubstring("ValidatingAdmissionPolicy 'autohealer-"+strings.ToLower(objects[0].GetKind())+"'")), "without any webhook")
		}
	})
}

// readAll reads every file below dir: kubectl does so in a process of its own, which the test cache doesn't notice, and
// would give a stale pass.
func readAll(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			_, err = os.ReadFile(name)
		}
		return err
	})
}

// testRights asks the API server what the manager's account may do: what it needs, and nothing that it doesn't.
func testRights(t *testing.T, c kubernetes.Interface) {
	type right struct {
		may                            bool
		verb, group, resource, subname string
		namespace                      string
	}
	rights := []right{
		{false, "get", "autohealer.resourcestack.com", "conditionsets/status", "a", ""},
		{false, "update", "autohealer.resourcestack.com", "conditionsets/status", "a", ""},
		{false, "update", "autohealer.resourcestack.com", "conditionsets/finalizers", "a", ""},
		{true, "get", "apiextensions.k8s.io", "customresourcedefinitions", "guardrails.autohealer.resourcestack.com", ""},
		{false, "get", "apiextensions.k8s.io", "customresourcedefinitions", "another", ""},
		{true, "list", "apiextensions.k8s.io", "customresourcedefinitions", "httpproxies.projectcontour.io", ""},
		{true, "watch", "apiextensions.k8s.io", "customresourcedefinitions", "httpproxies.projectcontour.io", ""},
		{false, "list", "apiextensions.k8s.io", "customresourcedefinitions", "", ""},
		{false, "patch", "apiextensions.k8s.io", "customresourcedefinitions", "guardrails.autohealer.resourcestack.com", ""},
		{true, "patch", "", "nodes", "a", ""},
		{false, "update", "", "nodes/status", "a", ""},
		{false, "delete", "", "nodes", "a", ""},
		{false, "patch", "extensions.gardener.cloud", "workers/status", "a", "default"},
		{true, "watch", "", "pods", "", ""},
		{true, "delete", "", "pods", "a", "default"},
		{false, "deletecollection", "", "pods", "", "default"},
		{true, "create", "", "pods/eviction", "a", "default"},
		{false, "create", "", "pods", "", "default"},
		{false, "patch", "", "pods", "a", "default"},
		{true, "watch", "", "services", "", ""},
		{false, "patch", "", "services", "a", "default"},
		{true, "watch", "", "namespaces", "", ""},
		{true, "watch", "discovery.k8s.io", "endpointslices", "", ""},
		{false, "patch", "discovery.k8s.io", "endpointslices", "a", "default"},
		{true, "watch", "apps", "daemonsets", "", ""},
		{true, "watch", "apps", "deployments", "", ""},
		{true, "watch", "apps", "statefulsets", "", ""},
		{true, "get", "apps", "daemonsets", "a", "default"},
		{false, "patch", "apps", "daemonsets", "a", "default"},
		{true, "list", "apps", "deployments", "", ""},
		{true, "list", "apps", "statefulsets", "", ""},
		{true, "get", "apps", "deployments", "a", "default"},
		{false, "patch", "apps", "statefulsets", "a", "default"},
		{true, "watch", "coordination.k8s.io", "leases", "", "kube-node-lease"},
		{false, "watch", "coordination.k8s.io", "leases", "", "kube-system"},
		{true, "update", "coordination.k8s.io", "leases", "autohealer-manager", "autohealer-system"},
		{false, "patch", "coordination.k8s.io", "leases", "autohealer-manager", "autohealer-system"},
		{false, "get", "coordination.k8s.io", "leases", "a", "kube-node-lease"},
		{false, "update", "coordination.k8s.io", "leases", "a", "kube-node-lease"},
		{true, "update", "", "secrets", "autohealer-webhook-cert", "autohealer-system"},
		{true, "watch", "", "secrets", "autohealer-webhook-cert", "autohealer-system"},
		{false, "patch", "", "secrets", "autohealer-webhook-cert", "autohealer-system"},
		{true, "update", "", "configmaps", "autohealer-envoy-clusters", "autohealer-system"},
		{true, "update", "", "configmaps", "autohealer-envoys", "autohealer-system"},
		{true, "update", "", "configmaps", "autohealer-evictions", "autohealer-system"},
		{false, "get", "", "configmaps", "another", "autohealer-system"},
		{false, "list", "", "configmaps", "", "autohealer-system"},
		{false, "list", "", "secrets", "", "autohealer-system"},
		{false, "get", "", "secrets", "a", "default"},
		{false, "get", "", "secrets", "autohealer-webhook-ca", "autohealer-system"},
		{false, "list", "", "secrets", "", "default"},
		{false, "watch", "", "secrets", "a", "default"},
		{false, "update", "", "secrets", "a", "default"},
		{true, "watch", "gateway.networking.k8s.io", "httproutes", "", ""},
		{true, "watch", "projectcontour.io", "httpproxies", "", ""},
		{false, "patch", "projectcontour.io", "httpproxies", "a", "default"},
		{true, "watch", "autoscaling", "horizontalpodautoscalers", "", ""},
		{false, "patch", "autoscaling", "horizontalpodautoscalers", "a", "default"},
		{false, "patch", "apps", "statefulsets", "a", "default"},
		{false, "update", "apps", "statefulsets/scale", "a", "default"},
		{true, "patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "autohealer", ""},
		{false, "patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "another", ""},
		{false, "create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""},
		{true, "create", "events.k8s.io", "events", "", "default"},
		{false, "create", "", "events", "", "autohealer-system"},
		{true, "create", "authentication.k8s.io", "tokenreviews", "", ""},
	}
	const ours = "autohealer.resourcestack.com"
	for _, k := range kinds.All { // of what it may not create it may change the status, and where there is something to undo the finalizer
		rights = append(rights, right{true, "get", ours, k.Plural(), "a", "default"}, right{true, "list", ours, k.Plural(), "", ""}, right{true, "watch", ours, k.Plural(), "", ""},
			right{k.Finalizer, "patch", ours, k.Plural(), "a", "default"}, right{false, "update", ours, k.Plural(), "a", "default"},
			right{false, "create", ours, k.Plural(), "", "default"}, right{false, "delete", ours, k.Plural(), "a", "default"},
			right{true, "patch", ours, k.Plural() + "/status", "a", "default"}, right{false, "get", ours, k.Plural() + "/status", "a", "default"})
	}
	for _, test := range rights {
		t.Run(fmt.Sprintf("%t %s %s %s %s", test.may, test.verb, test.resource, test.subname, test.namespace), func(t *testing.T) {
			resource, subresource, _ := strings.Cut(test.resource, "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: manager, Groups: []string{"system:serviceaccounts", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: test.verb, Group: test.group, Resource: resource, Subresource: subresource, Name: test.subname, Namespace: test.namespace,
				},
			}}
			answer, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(answer.Status.Allowed).To(Equal(test.may), answer.Status.Reason)
		})
	}
}

const forge = `{"metadata":{"annotations":{"autohealer.resourcestack.com/owned-taints":"{}"}}}`

// testOwnershipRecord has others than the manager change the record of a Node. Node-writer stands for a kubelet: it may
// write Nodes and their status, and nothing says that it may write this.
func testOwnershipRecord(t *testing.T, cfg *rest.Config) {
	ctx := t.Context()
	g := NewWithT(t)
	admin := kubernetes.NewForConfigOrDie(cfg)
	_, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	grantNodes(ctx, g, admin)
	kubelet := as(cfg, "node-writer")
	refused := And(
		MatchError(ContainSubstring("only Autohealer changes the annotation autohealer.resourcestack.com/owned-taints")),
		MatchError(ContainSubstring("node-writer needs the verb edit-owned-taints")),
	)

	g.Eventually(func() error { return patchNode(ctx, kubelet, forge) }, "20s").Should(refused, "the policy takes a moment to be in force")
	g.Expect(patchNode(ctx, kubelet, forge, "status")).To(refused, "annotations can be changed by way of the status, too")
	_, err = kubelet.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "new", Annotations: map[string]string{"autohealer.resourcestack.com/owned-taints": "{}"},
	}}, metav1.CreateOptions{})
	g.Expect(err).To(refused)

	g.Expect(patchNode(ctx, kubelet, `{"metadata":{"annotations":{"other":"x"}}}`)).To(Succeed())
	g.Expect(patchNode(ctx, kubelet, `{"status":{"nodeInfo":{"kubeletVersion":"v1"}}}`, "status")).To(Succeed())
	_, err = kubelet.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred(), "a node must always be able to register")

	g.Expect(patchNode(ctx, as(cfg, manager), forge)).To(Succeed())
	g.Expect(patchNode(ctx, kubelet, `{"metadata":{"labels":{"other":"x"}}}`)).To(Succeed(), "a record that is there hinders nobody")
	g.Expect(patchNode(ctx, kubelet, `{"metadata":{"annotations":{"autohealer.resourcestack.com/owned-taints":null}}}`)).To(refused)
	g.Expect(patchNode(ctx, admin, `{"metadata":{"annotations":{"autohealer.resourcestack.com/owned-taints":null}}}`)).To(Succeed())
}

func patchNode(ctx context.Context, c kubernetes.Interface, patch string, subresources ...string) error {
	_, err := c.CoreV1().Nodes().Patch(ctx, "n", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

func as(cfg *rest.Config, user string) kubernetes.Interface {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return kubernetes.NewForConfigOrDie(cfg)
}

func grantNodes(ctx context.Context, g Gomega, admin kubernetes.Interface) {
	_, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "node-writer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "node-writer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "node-writer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "node-writer"}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

// testNetworkPolicy: it is about the manager's pods and ports, by the names that these have, and keeps no API server out.
func testNetworkPolicy(t *testing.T, c kubernetes.Interface) {
	g := NewWithT(t)
	policy, err := c.NetworkingV1().NetworkPolicies("autohealer-system").Get(t.Context(), "autohealer-manager", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	deployment, err := c.AppsV1().Deployments("autohealer-system").Get(t.Context(), "autohealer-manager", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	pods, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Matches(labels.Set(deployment.Spec.Template.Labels))).To(BeTrue())
	var ports []string
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, port.Name)
	}
	from := map[string]int{}
	for _, rule := range policy.Spec.Ingress {
		from[rule.Ports[0].Port.StrVal] = len(rule.From)
	}
	g.Expect(from).To(Equal(map[string]int{"webhook": 0, "metrics": 1}))
	g.Expect(ports).To(ContainElements("webhook", "metrics"))
}
