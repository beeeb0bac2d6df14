package config_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/internal/kinds"
)

// testRoles asks the API server who may do what with our kinds, for each role of the table in docs/concepts/guardrails.md.
func testRoles(t *testing.T, c kubernetes.Interface) {
	var all, policies, tenants []string
	for _, k := range kinds.All {
		all = append(all, k.Plural())
		if !k.RulesOver {
			policies = append(policies, k.Plural())
		}
		if k.Tenants {
			tenants = append(tenants, k.Plural())
		}
	}
	for role, of := range map[string]struct {
		writes, reads []string
		part          string // of this role of Kubernetes'
	}{
		"autohealer-viewer":             {nil, all, "view"},
		"autohealer-tenant":             {tenants, tenants, "admin"},
		"autohealer-editor":             {policies, all, ""},
		"autohealer-guardrail-admin":    {[]string{"guardrails"}, all, ""},
		"autohealer-exception-approver": {[]string{"guardrailexceptions"}, all, ""},
		"autohealer-operator":           {nil, all, ""},
	} {
		t.Run(role, func(t *testing.T) {
			g := NewWithT(t)
			stored, err := c.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			for _, part := range []string{"view", "edit", "admin"} {
				aggregated := HaveKeyWithValue("rbac.authorization.k8s.io/aggregate-to-"+part, "true")
				if part != of.part {
					aggregated = Not(aggregated)
				}
				g.Expect(stored.Labels).To(aggregated)
			}
			_, err = c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role}},
			}, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			asks := func(right authorizationv1.ResourceAttributes) (bool, error) {
				answer, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: role, ResourceAttributes: &right},
				}, metav1.CreateOptions{})
				return err == nil && answer.Status.Allowed, err
			}
			may := func(verb, resource string) (bool, error) {
				resource, subresource, _ := strings.Cut(resource, "/")
				return asks(authorizationv1.ResourceAttributes{Group: "autohealer.resourcestack.com", Resource: resource, Subresource: subresource, Verb: verb, Namespace: "default"})
			}
			g.Eventually(may, "20s").WithArguments("list", of.reads[0]).Should(BeTrue(), "once the binding is known")
			for _, kind := range all {
				for verb, want := range map[string]bool{
					"get": slices.Contains(of.reads, kind), "list": slices.Contains(of.reads, kind), "watch": slices.Contains(of.reads, kind),
					"create": slices.Contains(of.writes, kind), "update": slices.Contains(of.writes, kind), "patch": slices.Contains(of.writes, kind),
					"delete": slices.Contains(of.writes, kind), "deletecollection": slices.Contains(of.writes, kind),
				} {
					g.Expect(may(verb, kind)).To(Equal(want), "%s %s %s", role, verb, kind)
				}
				for _, verb := range []string{"update", "patch"} {
					g.Expect(may(verb, kind+"/status")).To(BeFalse(), "%s %s status of %s", role, verb, kind)
				}
			}
			for lease, reads := range map[string]bool{"autohealer-manager": len(of.reads) == len(all), "another": false} {
				for _, verb := range []string{"get", "update", "delete"} {
					g.Expect(asks(authorizationv1.ResourceAttributes{
						Group: "coordination.k8s.io", Resource: "leases", Name: lease, Verb: verb, Namespace: "autohealer-system",
					})).To(Equal(reads && verb == "get"), "%s %s Lease %s", role, verb, lease)
				}
			}
		})
	}
}
