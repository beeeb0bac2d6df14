package outliers

import (
	"context"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Namespaces is all of some namespaces and nothing else, not the cluster's default either. It is the cache's own: nobody may change it.
func (i *Informers) Namespaces(ctx context.Context, names map[string]bool) (outlier.World, error) {
	all := outlier.World{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for name := range names {
		w, err := i.World(ctx, name)
		if err != nil {
			return all, err
		}
		all.Services, all.Routes = append(all.Services, w.Services...), append(all.Routes, w.Routes...)
		maps.Copy(all.Slices, w.Slices)
		for _, p := range w.Policies {
			if p.Namespace == name {
				all.Policies = append(all.Policies, p)
			}
		}
	}
	return all, nil
}

// Known is what is known of a kind of routes: whether the cluster serves it, and whether it is known which there are.
type Known struct{ Served, Read bool }

// Known tells it of all kinds.
func (i *Informers) Known() map[string]Known {
	unread, all := i.unread(), map[string]Known{}
	for _, kind := range outlier.RouteKinds {
		_, served := i.RouteKind(kind.Kind)
		all[kind.Kind] = Known{Served: served, Read: !unread[kind.Kind]}
	}
	return all
}
