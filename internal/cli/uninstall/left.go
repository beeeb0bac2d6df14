package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lookAtBindings finds who was given one of our roles: they are people's, and name a role that will be gone.
func (u *Uninstaller) lookAtBindings(ctx context.Context, s *Survey) error {
	var inAll rbacv1.ClusterRoleBindingList
	var inOne rbacv1.RoleBindingList
	for _, list := range []client.ObjectList{&inAll, &inOne} {
		if err := u.Client.List(ctx, list); err != nil {
			return fmt.Errorf("look for bindings of Autohealer's roles: %w", err)
		}
	}
	roles := part{kind: clusterRoleKind}.names()
	tell := func(kindOf string, o metav1.ObjectMeta, role rbacv1.RoleRef) {
		if role.Kind == "ClusterRole" && slices.Contains(roles, role.Name) && o.Labels[label] != ours && o.Namespace != u.Namespace {
			binding := about(kind(rbacv1.GroupName, kindOf), o.Namespace, o.Name)
			s.Left = append(s.Left, fmt.Sprintf("%s binds a role of Autohealer's that will be gone: kubectl delete %s", title(binding), named(binding)))
		}
	}
	for i := range inAll.Items {
		tell("ClusterRoleBinding", inAll.Items[i].ObjectMeta, inAll.Items[i].RoleRef)
	}
	for i := range inOne.Items {
		tell("RoleBinding", inOne.Items[i].ObjectMeta, inOne.Items[i].RoleRef)
	}
	return nil
}

// lookAtNamespace says whether our namespace can go: not while there is something of others in it.
func (u *Uninstaller) lookAtNamespace(ctx context.Context, s *Survey) error {
	ns, err := u.get(ctx, about(namespaceKind, "", u.Namespace))
	if err != nil || ns == nil {
		return err
	}
	if !labelled(ns) {
		s.Left = append(s.Left, fmt.Sprintf("%s has no label %s=%s, so somebody else made it. If nobody needs it: kubectl delete %s", title(ns), label, ours, named(ns)))
		return nil
	}
	others, err := u.others(ctx, s)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		s.Left = append(s.Left, fmt.Sprintf("%s holds what isn't Autohealer's: %s. If nobody needs it: kubectl delete %s", title(ns), some(others, ", "), named(ns)))
		return nil
	}
	s.Delete[ownNamespace] = []*object{ns}
	return nil
}

// others are the objects in our namespace that are neither ours, nor Kubernetes', nor somebody's that goes with them.
func (u *Uninstaller) others(ctx context.Context, s *Survey) (found []string, err error) {
	kinds, err := u.kinds(func(_ schema.GroupVersion, r metav1.APIResource) bool { return r.Namespaced && keeps(r) })
	if err != nil {
		return nil, err
	}
	known := []string{"configmap/kube-root-ca.crt", "serviceaccount/default"}
	for _, o := range s.all() {
		known = append(known, strings.ToLower(o.Kind)+"/"+o.Name)
	}
	for _, kind := range kinds {
		there, err := u.list(ctx, kind, client.InNamespace(u.Namespace))
		if err != nil {
			return nil, err
		}
		for _, o := range there {
			goesWith := len(o.OwnerReferences) > 0 || o.Annotations[corev1.ServiceAccountNameKey] != ""
			if name := strings.ToLower(o.Kind) + "/" + o.Name; !goesWith && !slices.Contains(known, name) {
				found = append(found, name)
			}
		}
	}
	return found, nil
}

// keeps says whether objects of a resource are somebody's: Events and Endpoints are Kubernetes' own, and what can't be made and
// deleted is only a view.
func keeps(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && r.Name != "events" && r.Name != "endpoints" &&
		slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "delete")
}

// most is how many of many are named.
const most = 20

// some of many, in one line or one a line.
func some(all []string, between string) string {
	if len(all) <= most {
		return strings.Join(all, between)
	}
	return strings.Join(all[:most], between) + fmt.Sprintf("%s… and %d more", between, len(all)-most)
}
