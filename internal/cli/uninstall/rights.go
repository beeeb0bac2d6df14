package uninstall

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// right is one that the uninstall takes.
type right struct {
	verb        string
	kind        schema.GroupVersionKind
	subresource string
	namespace   string
}

// lookAtRights asks the API server whether whoever runs this may do all of it: half of it would leave things stuck.
func (u *Uninstaller) lookAtRights(ctx context.Context, s *Survey) error {
	var lacking []string
	for _, r := range u.needed(s) {
		mapping, err := u.Client.RESTMapper().RESTMapping(r.kind.GroupKind(), r.kind.Version)
		if err != nil {
			continue // its kind went meanwhile, so nothing of it is left to do
		}
		resource := mapping.Resource
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: resource.Group, Resource: resource.Resource, Subresource: r.subresource, Namespace: r.namespace,
		}}}
		if err := u.Client.Create(ctx, review); err != nil {
			return fmt.Errorf("ask what you may do: %w", err)
		}
		if review.Status.Allowed {
			continue
		}
		what := resource.GroupResource().String()
		if r.subresource != "" {
			what += "/" + r.subresource
		}
		if r.namespace != "" {
			what += " in namespace " + r.namespace
		}
		lacking = append(lacking, r.verb+" "+what)
	}
	slices.Sort(lacking)
	for _, what := range slices.Compact(lacking) {
		s.Blocked = append(s.Blocked, "You may not "+what)
	}
	return nil
}

// needed are the rights that a survey's objects take, each once.
func (u *Uninstaller) needed(s *Survey) []right {
	var all []right
	need := func(kind schema.GroupVersionKind, subresource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			if r := (right{verb, kind, subresource, namespace}); !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	for _, r := range s.Undo {
		need(r.Object.Kind, "", r.Object.Key.Namespace, "get", "patch")
		switch {
		case r.Object.Kind.Kind == "Node":
			need(setKind, "", "", "own-taints")
		case r.Object.Checked:
			need(r.Object.Kind, "status", r.Object.Key.Namespace, "patch")
		default:
			need(r.Object.Kind, "scale", r.Object.Key.Namespace, "get", "update")
		}
	}
	for _, o := range s.Held {
		need(o.Kind, "", o.Key.Namespace, "patch")
	}
	if len(s.Kinds) > 0 {
		need(railKind, "", "", "get", "create", "delete")
	}
	gone := slices.Concat(s.Rails, s.Kinds, s.Parts[gates], s.Parts[manager], s.Parts[rights])
	if s.Namespace != nil {
		gone = append(gone, s.Namespace)
	}
	for _, o := range s.Policies {
		need(o.GroupVersionKind(), "", o.Namespace, "delete", "patch") // patch: the finalizer
	}
	for _, o := range gone {
		need(o.GroupVersionKind(), "", o.Namespace, "delete")
	}
	return all
}

var (
	setKind  = v1alpha1.GroupVersion.WithKind("ConditionSet")
	railKind = v1alpha1.GroupVersion.WithKind("Guardrail")
)
