package kube

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Policies finds stored objects of our own kinds in the manager's cache, for rules that look at them.
type Policies struct {
	Cache  cache.Cache
	Scheme *runtime.Scheme
}

// Synced says whether the cache of a kind is filled; it doesn't wait for that.
func (p *Policies) Synced(ctx context.Context, kind string) bool {
	informer, err := p.Cache.GetInformerForKind(ctx, v1alpha1.GroupVersion.WithKind(kind), cache.BlockUntilSynced(false))
	return err == nil && informer.HasSynced()
}

// Get gives an object, nil when there is none.
func (p *Policies) Get(ctx context.Context, kind, namespace, name string) (client.Object, error) {
	made, err := p.Scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", kind, err)
	}
	object := made.(client.Object)
	if err := p.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// All are the objects of a kind in the order of their names, as the cache has them: nobody may change them.
func (p *Policies) All(ctx context.Context, kind string) (iter.Seq[client.Object], error) {
	made, err := p.Scheme.New(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", kind, err)
	}
	list := made.(client.ObjectList)
	if err := p.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s in the cache: %w", kind, err)
	}
	objects := make([]client.Object, 0, meta.LenList(list))
	err = meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, item.(client.Object))
		return nil
	})
	slices.SortFunc(objects, ByName) // a cache has no order
	return slices.Values(objects), err
}

// ByName orders objects of a kind by namespace and name.
func ByName(a, b client.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
