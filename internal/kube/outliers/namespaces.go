package outliers

import (
	"context"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// ObjectsIn are those of some namespaces and nothing else, not the cluster's default either. They are the cache's: read-only.
func (i *Informers) ObjectsIn(ctx context.Context, names map[string]bool) (outlier.Objects, error) {
	all := outlier.Objects{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for name := range names {
		objects, err := i.Objects(ctx, name)
		if err != nil {
			return all, err
		}
		all.Services, all.Routes = append(all.Services, objects.Services...), append(all.Routes, objects.Routes...)
		maps.Copy(all.Slices, objects.Slices)
		for _, p := range objects.Policies {
			if p.Namespace == name {
				all.Policies = append(all.Policies, p)
			}
		}
	}
	return all, nil
}

// RouteKindState says whether the cluster serves a kind of routes, and whether its objects are read.
type RouteKindState struct{ Served, Read bool }

// RouteKindStates are those of all kinds of routes.
func (i *Informers) RouteKindStates() map[string]RouteKindState {
	unread, all := i.unread(), map[string]RouteKindState{}
	for _, kind := range outlier.RouteKinds {
		_, served := i.RouteKind(kind.Kind)
		all[kind.Kind] = RouteKindState{Served: served, Read: !unread[kind.Kind]}
	}
	return all
}
