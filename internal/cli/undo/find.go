package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
)

// Find gives everything to which something was done by its record, in one namespace, or with "" in the whole cluster, nodes
// included. What it can't look at is reported in the error; what it finds is complete otherwise.
func (u *Undoer) Find(ctx context.Context, kinds discovery.DiscoveryInterface, namespace string) ([]Object, error) {
	var found []Object
	add := func(o Object) { found = append(found, o) }
	var failed error
	if namespace == "" {
		if err := u.each(ctx, nodeKind, "", v1alpha1.AnnotationOwnedTaints, add); err != nil {
			failed = errors.Join(errors.New("nodes can't be read"), err)
		}
	}
	scalable, err := scalableKinds(kinds)
	failed = errors.Join(failed, err)
	for _, kind := range scalable {
		if err := u.each(ctx, kind, namespace, v1alpha1.AnnotationOriginalReplicas, add); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	err = u.each(ctx, actuate.PatchesKind, namespace, v1alpha1.AnnotationPatchedFor, add)
	if !apierrors.IsForbidden(err) || u.read(ctx).mayBePatched() {
		failed = errors.Join(failed, err)
	}
	err = u.eachChecked(ctx, kinds, namespace, v1alpha1.AnnotationOwnedConditions, func(o Object) { o.Checked = true; add(o) })
	return found, errors.Join(failed, err)
}

// FindHeld gives everything in the cluster that people keep Autohealer from, whether that is over or not.
func (u *Undoer) FindHeld(ctx context.Context, kinds discovery.DiscoveryInterface) ([]Object, error) {
	var found []Object
	add := func(o Object) {
		if !slices.Contains(found, o) { // a kind may have a scale and conditions
			found = append(found, o)
		}
	}
	scalable, failed := scalableKinds(kinds)
	for _, kind := range append(scalable, nodeKind, podKind, daemonSetKind) {
		if err := u.each(ctx, kind, "", v1alpha1.AnnotationHoldUntil, add); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return found, errors.Join(failed, u.eachChecked(ctx, kinds, "", v1alpha1.AnnotationHoldUntil, add))
}

// eachChecked gives the objects with an annotation, of all kinds that may have conditions of ours.
func (u *Undoer) eachChecked(ctx context.Context, kinds discovery.DiscoveryInterface, namespace, annotation string, found func(Object)) error {
	checked, failed := checkedKinds(kinds)
	for _, kind := range checked {
		err := u.each(ctx, kind, namespace, annotation, found)
		if apierrors.IsForbidden(err) && !u.read(ctx).mayBeChecked(kind) {
			continue // whom no registration concerns needn't be allowed to list it
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// podKind and daemonSetKind have no scale, and may be held.
var (
	podKind       = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	daemonSetKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
)

// scalableKinds are all kinds of namespaced objects that have a scale, in one version each. Those to whose objects others'
// annotations are copied come last, or they would get a copy anew.
func scalableKinds(from discovery.DiscoveryInterface) ([]schema.GroupVersionKind, error) {
	kinds, err := KindsOf(from, func(_ schema.GroupVersion, r metav1.APIResource, all []metav1.APIResource) bool {
		return r.Namespaced && hasSub(r, all, "scale")
	})
	if err != nil {
		err = fmt.Errorf("not all kinds can be looked at: %w", err)
	}
	copies := func(k schema.GroupVersionKind) int { return strings.Count(k.Kind, "ReplicaSet") }
	slices.SortStableFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(copies(a)-copies(b), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	})
	return kinds, err
}

// KindsOf are the kinds that the API server says can be listed and that are wanted, in one version each. Wanted is asked of each
// resource, with all of its group and version. Where there is an error they aren't all.
func KindsOf(from discovery.DiscoveryInterface, wanted func(schema.GroupVersion, metav1.APIResource, []metav1.APIResource) bool) ([]schema.GroupVersionKind, error) {
	_, lists, err := from.ServerGroupsAndResources()
	var kinds []schema.GroupVersionKind
	for _, list := range lists {
		gv, invalid := schema.ParseGroupVersion(list.GroupVersion)
		if invalid != nil {
			continue
		}
		for _, r := range list.APIResources {
			seen := slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Group == gv.Group && k.Kind == r.Kind })
			if !seen && slices.Contains(r.Verbs, "list") && wanted(gv, r, list.APIResources) {
				kinds = append(kinds, gv.WithKind(r.Kind))
			}
		}
	}
	return kinds, err
}

// hasSub says whether a resource has a subresource.
func hasSub(r metav1.APIResource, all []metav1.APIResource, sub string) bool {
	return slices.ContainsFunc(all, func(s metav1.APIResource) bool { return s.Name == r.Name+"/"+sub })
}

// each gives the objects of a kind that have an annotation.
func (u *Undoer) each(ctx context.Context, kind schema.GroupVersionKind, namespace, annotation string, found func(Object)) error {
	return Each(ctx, u.Client, kind, func(about *metav1.PartialObjectMetadata) {
		if _, has := about.Annotations[annotation]; has {
			found(Object{Kind: kind, Key: client.ObjectKeyFromObject(about), Title: Title(kind, about.Namespace, about.Name)})
		}
	}, client.InNamespace(namespace))
}

// Each gives the metadata of the objects of a kind, chunk by chunk; none when the kind isn't there.
func Each(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, found func(*metav1.PartialObjectMetadata), options ...client.ListOption) error {
	chunks := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		chunk := &metav1.PartialObjectMetadataList{}
		chunk.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return chunk, c.List(ctx, chunk, slices.Concat(options, []client.ListOption{client.Limit(opts.Limit), client.Continue(opts.Continue)})...)
	})
	err := chunks.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		about := item.(*metav1.PartialObjectMetadata)
		about.SetGroupVersionKind(kind)
		found(about)
		return nil
	})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // no such kind any more
	}
	if err != nil {
		return fmt.Errorf("look at %ss: %w", strings.ToLower(kind.Kind), err)
	}
	return nil
}

// Title names an object for people, such as node/worker-7.
func Title(kind schema.GroupVersionKind, namespace, name string) string {
	of := strings.ToLower(kind.Kind) + "/" + name
	if namespace == "" {
		return of
	}
	return of + " in namespace " + namespace
}
