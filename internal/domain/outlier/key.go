package outlier

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Key names a cluster: a port of a Service, for all or for one route.
type Key struct {
	Service types.NamespacedName
	Port    int32
	// Route is empty for the cluster that all share.
	Route RouteKey
}

// String is the cluster's name: namespace/service/port, with @kind/route for a route's.
func (k Key) String() string {
	name := k.Service.Namespace + "/" + k.Service.Name + "/" + strconv.Itoa(int(k.Port))
	if k.Route != (RouteKey{}) {
		name += "@" + strings.ToLower(k.Route.Kind) + "/" + k.Route.Name
	}
	return name
}

// ParseKey reads a cluster's name; ok is false for one that isn't Autohealer's.
func ParseKey(name string) (k Key, ok bool) {
	shared, route, hasRoute := strings.Cut(name, "@")
	parts := strings.Split(shared, "/")
	if len(parts) != 3 {
		return Key{}, false
	}
	port, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil {
		return Key{}, false
	}
	k = Key{Service: types.NamespacedName{Namespace: parts[0], Name: parts[1]}, Port: int32(port)}
	if hasRoute {
		kind, named, _ := strings.Cut(route, "/")
		for _, known := range RouteKinds {
			if strings.ToLower(known.Kind) == kind {
				k.Route = RouteKey{known.Kind, named}
			}
		}
	}
	return k, k.String() == name
}
