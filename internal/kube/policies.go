package kube

import (
	"context"
	"errors"
	"fmt"
	"iter"

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

// All are the objects of a kind, as the cache has them: nobody may change them.
func (p *Policies) All(ctx context.Context, kind string) (iter.Seq[client.Object], error) {
	made, err := p.Scheme.New(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", kind, err)
	}
	list := made.(client.ObjectList)
	if err := p.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s in the cache: %w", kind, err)
	}
	return func(yield func(client.Object) bool) {
		enough := errors.New("enough")
		_ = meta.EachListItem(list, func(item runtime.Object) error { // its only error is ours
			if !yield(item.(client.Object)) {
				return enough
			}
			return nil
		})
	}, nil
}
