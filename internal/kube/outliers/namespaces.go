package outliers

import (
	"context"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// ObjectsIn are those of some namespaces and nothing else, not the cluster's default either. They are the cache's: read-only.
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

// RouteKindState says whether the cluster serves a kind of routes, and whether its objects are read.
type Known struct{ Served, Read bool }

// RouteKindStates are those of all kinds of routes.
func (i *Informers) Known() map[string]Known {
	unread, all := i.unread(), map[string]Known{}
	for _, kind := range outlier.RouteKinds {
		_, served := i.RouteKind(kind.Kind)
		all[kind.Kind] = Known{Served: served, Read: !unread[kind.Kind]}
	}
	return all
}
