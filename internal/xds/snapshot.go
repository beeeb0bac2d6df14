package xds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is what is to be served, all of it or what is new: a cluster that isn't in it is served as it was. The server keeps its
// messages: they must not change any more. The same message in the next snapshot costs one comparison of pointers.
type Snapshot struct {
	// Clusters by name. Those of type EDS get their endpoints from this server, under a service_name of NAME#HASH, where
	// the hash must change with the cluster; one is made where there is none.
	Clusters map[string]*clusterv3.Cluster
	// Endpoints by the name of the cluster; what they call it themselves doesn't matter. A cluster without an entry keeps the endpoints it had; a new one has none.
	Endpoints map[string]*endpointv3.ClusterLoadAssignment
	// Owners are the Services that clusters stand for, by the name of the cluster. Their namespaces decide which
	// identities see a cluster; one without an owner is seen by those that see all.
	Owners map[string]types.NamespacedName
	// Gone are clusters that were found to be gone by live reads. Only they are removed: a cluster that is missing in Clusters
	// and not gone is served as it was, and one that is in both is served until it may go. What is held must be named again
	// in each snapshot.
	Gone []string
	// Missing are clusters that clients may have from another replica, or from before a restart, and that aren't found any more,
	// gone or not. While there are some that this server can't serve, clients that take a cluster that isn't sent for one that is
	// gone are sent none.
	Missing []string
}

// Held are removals that wait, because too many clusters would go at a time.
type Held struct {
	// Clusters by name, sorted.
	Clusters []string
	// Since is when the first of them go, or went.
	Since time.Time
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
	// Message is the proxy's, in its own words: one line of at most 1 KiB.
	Message string
}
