package xds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is what is to be served, all of it or what changed: a cluster that isn't in it is served as before. The server keeps its
// messages: they must not be changed afterwards. The same message in the next snapshot costs one comparison of pointers.
type Snapshot struct {
	// Clusters by name. Those of type EDS get their endpoints from this server, under a service_name of NAME#HASH, where
	// the hash must change with the cluster; one is made where there is none.
	Clusters map[string]*clusterv3.Cluster
	// Endpoints by the name of the cluster; what they call it themselves doesn't matter. A cluster without an entry keeps the endpoints it had; a new one has none.
	Endpoints map[string]*endpointv3.ClusterLoadAssignment
	// Owners are the clusters' Services, by the name of the cluster. A Service's namespace decides which identities may see its cluster;
	// a cluster without an owner is for identities with Scope.All.
	Owners map[string]types.NamespacedName
	// Gone are clusters whose Service or route live reads didn't find. Only they are removed: a cluster that is missing in Clusters and not
	// gone is served as before, and one that is in both is served until it may be removed. A delayed removal must be in each snapshot.
	Gone []string
	// Missing are clusters that clients may have from another replica, or from before a restart, and whose Service or route informers don't
	// have, gone or not. While there are some that this server can't serve, clients of the state of the world, which remove what they aren't
	// sent, get no clusters.
	Missing []string
}

// DelayedRemovals are clusters that are gone and still served, because too many would be removed at a time.
type DelayedRemovals struct {
	// Clusters by name, sorted.
	Clusters []string
	// Start is when the first of them are removed, or were.
	Start time.Time
}

// Scope is what an identity may see.
type Scope struct {
	// All namespaces, and clusters without an owner.
	All bool
	// Namespaces by name.
	Namespaces map[string]bool
}

func (s Scope) allows(namespace string) bool {
	return s.All || (namespace != "" && s.Namespaces[namespace])
}

// Rejection of a cluster or of its endpoints.
type Rejection struct {
	// Proxy is the identity of the one that rejected; empty when the server itself found the cluster invalid and serves
	// the last good one.
	Proxy string
	// Message is the proxy's: one line of at most 1 KiB.
	Message string
}
