package kube

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// StoredKinds finds stored objects of our own kinds in the cache, for rules that look at them. It never waits.
type StoredKinds struct {
	Cache  cache.Cache
	Scheme *runtime.Scheme
}

// Synced says whether the cache of a kind is filled. When nobody has asked for the kind yet, it begins to be.
func (s *StoredKinds) Synced(kind string) bool {
	object, ok := s.make(kind).(client.Object)
	if !ok {
		return false
	}
	informer, err := s.Cache.GetInformer(context.Background(), object, cache.BlockUntilSynced(false))
	return err == nil && informer.HasSynced()
}

// Get gives an object, nil when there is none.
func (s *StoredKinds) Get(kind, namespace, name string) client.Object {
	object, ok := s.make(kind).(client.Object)
	if !ok || !s.Synced(kind) {
		return nil
	}
	if s.Cache.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: name}, object) != nil {
		return nil
	}
	return object
}

// All are the objects of a kind. They are the cache's own: nobody may change them.
func (s *StoredKinds) All(kind string) iter.Seq[client.Object] {
	return func(yield func(client.Object) bool) {
		list, ok := s.make(kind + "List").(client.ObjectList)
		if !ok || !s.Synced(kind) || s.Cache.List(context.Background(), list, client.UnsafeDisableDeepCopy) != nil {
			return
		}
		more := true
		_ = meta.EachListItem(list, func(item runtime.Object) error { // fails only when f does
			if object, ok := item.(client.Object); more && ok {
				more = yield(object)
			}
			return nil
		})
	}
}

func (s *StoredKinds) make(kind string) runtime.Object {
	object, err := s.Scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil
	}
	return object
}
