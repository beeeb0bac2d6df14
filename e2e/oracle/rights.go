package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// rbacResources are what rights follow from.
func rbacResources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, resource := range []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"} {
		all = append(all, schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: resource})
	}
	return all
}

// role is a Role or, without a namespace, a ClusterRole.
type role struct {
	key   types.NamespacedName
	rules []rbacv1.PolicyRule
}

// binding is a RoleBinding or, without a namespace, a ClusterRoleBinding.
type binding struct {
	key, role types.NamespacedName
	subjects  []rbacv1.Subject
}

func (*role) Records() []types.UID    { return nil }
func (*binding) Records() []types.UID { return nil }

func parseRole(key types.NamespacedName, object []byte) (*role, error) {
	var o rbacv1.Role // a ClusterRole has the same rules
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, fmt.Errorf("read a role: %w", err)
	}
	return &role{key: key, rules: o.Rules}, nil
}

func parseBinding(key types.NamespacedName, object []byte) (*binding, error) {
	var o rbacv1.RoleBinding // a ClusterRoleBinding has the same subjects
	if err := json.Unmarshal(object, &o); err != nil {
		return nil, fmt.Errorf("read a binding: %w", err)
	}
	b := &binding{key: key, role: types.NamespacedName{Name: o.RoleRef.Name}, subjects: o.Subjects}
	if o.RoleRef.Kind == "Role" {
		b.role.Namespace = key.Namespace
	}
	return b, nil
}

// rights are those of all accounts, from the first moment on.
type rights struct{ past []authority }

// authority is what all roles and bindings said from a moment on.
type authority struct {
	from     time.Time
	roles    map[types.NamespacedName][]rbacv1.PolicyRule
	bindings map[types.NamespacedName]*binding
}

// change makes what holds from a moment on out of what held before.
func (r *rights) change(at time.Time, how func(authority)) {
	next := authority{from: at, roles: map[types.NamespacedName][]rbacv1.PolicyRule{}, bindings: map[types.NamespacedName]*binding{}}
	if len(r.past) > 0 {
		last := r.past[len(r.past)-1]
		next.roles, next.bindings = maps.Clone(last.roles), maps.Clone(last.bindings)
	}
	how(next)
	r.past = append(r.past, next)
}

func (r *rights) role(at time.Time, changed *role, gone bool) {
	r.change(at, func(a authority) {
		if a.roles[changed.key] = changed.rules; gone {
			delete(a.roles, changed.key)
		}
	})
}

func (r *rights) binding(at time.Time, changed *binding, gone bool) {
	r.change(at, func(a authority) {
		if a.bindings[changed.key] = changed; gone {
			delete(a.bindings, changed.key)
		}
	})
}

// right is to do something with objects of a resource in a namespace: with all, or with some at least.
type right struct {
	verb, group, resource, namespace string
	some                             bool
}

// had says whether an account had a right at a moment, or at any in the time before it.
func (r *rights) had(account types.NamespacedName, asked right, at time.Time, before time.Duration) bool {
	for i, a := range slices.Backward(r.past) {
		last := i == len(r.past)-1
		if over := !last && at.Sub(r.past[i+1].from) > before; over {
			return false
		}
		if !a.from.After(at) && a.may(account, asked) {
			return true
		}
	}
	return false
}

func (a authority) may(account types.NamespacedName, asked right) bool {
	for _, b := range a.bindings {
		if b.key.Namespace != "" && b.key.Namespace != asked.namespace || !b.binds(account) {
			continue
		}
		for _, rule := range a.roles[b.role] {
			if covers(rule.Verbs, asked.verb) && covers(rule.APIGroups, asked.group) && covers(rule.Resources, asked.resource) && (asked.some || len(rule.ResourceNames) == 0) {
				return true
			}
		}
	}
	return false
}

func covers(allowed []string, asked string) bool {
	return slices.Contains(allowed, asked) || slices.Contains(allowed, "*")
}

func (b *binding) binds(account types.NamespacedName) bool {
	return slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return s.Namespace == account.Namespace && s.Name == account.Name
		case rbacv1.UserKind:
			return s.Name == "system:serviceaccount:"+account.Namespace+":"+account.Name
		}
		return slices.Contains([]string{"system:serviceaccounts:" + account.Namespace, "system:serviceaccounts", "system:authenticated"}, s.Name)
	})
}
