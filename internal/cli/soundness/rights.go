package soundness

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/config"
	"github.com/resourcestack/autohealer/internal/cli/check"
)

// rolesIn are the Roles and ClusterRoles of this version in files; a Role has the same fields.
func rolesIn(files ...string) (roles []rbacv1.ClusterRole, err error) {
	for _, file := range files {
		found, err := config.Objects(config.FS, file, "Role", "ClusterRole")
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				return nil, fmt.Errorf("read %s: %w", title(o), err)
			}
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// rights asks the API server whether the manager's account may do what its roles say, by whatever binding it may.
func (c *Checker) rights(ctx context.Context) ([]Finding, error) {
	deployed, err := c.deployment(ctx)
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = c.Namespace, c.Manager
	provider := selfSigned
	if deployed != nil {
		account.Name = cmp.Or(deployed.Spec.Template.Spec.ServiceAccountName, "default")
		provider = providerOf(deployed)
	}
	files := []string{"rbac/manager_role.yaml", "rbac/manager_role_node_leases.yaml", "rbac/manager_role_own_namespace.yaml"}
	switch provider {
	case selfSigned:
		files = append(files, "rbac/manager_role_webhook.yaml")
	case certManager:
		files = append(files, "certmanager/component/manager_role.yaml")
	}
	var found []Finding
	if err := c.Client.Get(ctx, keyOf(account), account); apierrors.IsNotFound(err) {
		found = append(found, Finding{fmt.Sprintf("serviceaccount/%s in namespace %s is missing, as which the manager runs", account.Name, account.Namespace), reapply})
	} else if err != nil {
		return nil, err
	}
	roles, err := rolesIn(files...)
	if err != nil {
		return nil, err
	}
	for _, r := range roles {
		missing, err := c.missingRights(ctx, account.Name, r)
		found = append(found, missing...)
		if err != nil {
			return sorted(found), err
		}
	}
	return sorted(found), nil
}

// The providers of the serving certificate for which the manager needs rights of their own.
const (
	selfSigned  = "self-signed"
	certManager = "cert-manager"
)

// providerOf is who provides the certificate, as the Deployment's flags say.
func providerOf(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if provider, isIt := strings.CutPrefix(arg, "--cert-provider="); isIt {
				return provider
			}
		}
	}
	return selfSigned
}

// missingRights are the rights of a role that the account hasn't. That it has none of them has one reason, so it is one finding.
func (c *Checker) missingRights(ctx context.Context, account string, r rbacv1.ClusterRole) (found []Finding, err error) {
	if r.Namespace == check.DefaultNamespace {
		r.Namespace = c.Namespace // wherever it was installed
	}
	do := fmt.Sprintf("in %s, bound to the account %s in namespace %s. %s", title(&r), account, c.Namespace, reapply)
	rights := rightsOf(r)
	for _, right := range rights {
		allowed, err := c.accountMay(ctx, account, right)
		if err != nil {
			return found, err
		}
		if !allowed {
			found = append(found, Finding{"the manager may not " + rightText(right), "It is " + do})
		}
	}
	if len(found) > 1 && len(found) == len(rights) {
		found = []Finding{{fmt.Sprintf("the manager has none of the rights of %s", title(&r)), "They are " + do}}
	}
	return found, nil
}

// rightsOf are the single rights of a role.
func rightsOf(r rbacv1.ClusterRole) (all []authorizationv1.ResourceAttributes) {
	for _, rule := range r.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						resource, sub, _ := strings.Cut(resource, "/")
						all = append(all, authorizationv1.ResourceAttributes{
							Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name, Namespace: r.Namespace,
						})
					}
				}
			}
		}
	}
	return all
}

func rightText(right authorizationv1.ResourceAttributes) string {
	what := right.Resource
	if right.Subresource != "" {
		what += "/" + right.Subresource
	}
	if right.Group != "" {
		what += "." + right.Group
	}
	if right.Name != "" {
		what += " " + right.Name
	}
	if right.Namespace != "" {
		what += " in namespace " + right.Namespace
	}
	return right.Verb + " " + what
}

func (c *Checker) accountMay(ctx context.Context, account string, right authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   fmt.Sprintf("system:serviceaccount:%s:%s", c.Namespace, account),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.Namespace, "system:authenticated"}, ResourceAttributes: &right,
	}}
	err := c.Client.Create(ctx, review)
	return review.Status.Allowed, err
}

// roles compares the roles for people: they may have more rights than ours have, and no fewer.
func (c *Checker) roles(ctx context.Context) ([]Finding, error) {
	all, err := rolesIn("rbac/user_roles.yaml", "rbac/metrics_reader_role.yaml", "rbac/probe_target_role.yaml", "rbac/envoy_patches_role.yaml")
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, wanted := range all {
		stored := &rbacv1.ClusterRole{}
		stored.Name = wanted.Name
		err := c.Client.Get(ctx, keyOf(stored), stored)
		if apierrors.IsNotFound(err) {
			found = append(found, Finding{title(&wanted) + " is missing", reapply})
			continue
		}
		if err != nil {
			return found, err
		}
		for _, right := range rightsOf(wanted) {
			if !slices.ContainsFunc(stored.Rules, func(r rbacv1.PolicyRule) bool { return allows(r, right) }) {
				found = append(found, Finding{fmt.Sprintf("%s doesn't allow to %s", title(&wanted), rightText(right)), reapply})
			}
		}
		for key, value := range wanted.Labels {
			if stored.Labels[key] != value {
				found = append(found, Finding{fmt.Sprintf("%s has no label %s=%s", title(&wanted), key, value), reapply})
			}
		}
	}
	return sorted(found), nil
}

func allows(rule rbacv1.PolicyRule, right authorizationv1.ResourceAttributes) bool {
	resource := right.Resource
	if right.Subresource != "" {
		resource += "/" + right.Subresource
	}
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return has(rule.Verbs, right.Verb) && has(rule.APIGroups, right.Group) && has(rule.Resources, resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, right.Name))
}
