// Package xds serves clusters and their endpoints to Envoys: ADS, delta and state of the world, CDS and EDS.
//
// Server.Set takes a Snapshot and publishes what differs from the last one: a cluster that didn't change isn't sent again.
// Versions are hashes of contents, so another replica, or this one after a restart, sends a reconnecting Envoy only what differs.
//
// An Envoy never loses all of its clusters. No stream is served before the first Set; a cluster that is missing in a Snapshot is
// served as before; one that is confirmed to be gone is removed, unless too many would be removed at a time.
//
// Each stream belongs to the identity in its client's certificate and gets only what that identity may see. The node that a client
// sends isn't read, and the resource names that it sends affect its own stream alone.
//
// A resource on a stream goes through these states; a watch has them for one type on one stream:
//
//	Set         request answered         ACK
//	 └─> dirty ───────────────> unacked ─────> accepted ──(Set changes it)──> dirty
//	                               └──NACK───> rejected ──(Set changes it)──> dirty
//
// The protocol is go-control-plane's. Its caches aren't used: on each change they compare everything that every client has
// subscribed to. A table here has for each watch what changed since its last response.
//
// Begin to read at Server.Set (publish.go) for what is served, and at session (session.go) for a stream.
package xds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// Snapshot is what is to be served, all of it or what changed: a cluster that isn't in it is served as before. The server keeps its
// messages: they must not be changed afterwards. The same cluster in the next snapshot costs one comparison.
type Snapshot struct {
	// Clusters by name.
	Clusters map[string]Cluster
	// Gone are clusters whose Service or route live reads didn't find. Only they are removed: a cluster that is missing in Clusters and not
	// gone is served as before, and one that is in both is served until it may be removed. A delayed removal must be in each snapshot.
	Gone []string
	// Missing are clusters that clients may have from another replica, or from before a restart, and whose Service or route informers don't
	// have, gone or not. While there are some that this server can't serve, clients of the state of the world, which remove what they aren't
	// sent, get no clusters.
	Missing []string
}

// Cluster is one to be served, with its endpoints.
type Cluster struct {
	// Message, of type EDS and never nil: this server has the endpoints, under a service_name of NAME#HASH that it sets.
	Message *clusterv3.Cluster
	// Endpoints; how they name the cluster doesn't matter. Nil for those that it had; a new one has none then.
	Endpoints *endpointv3.ClusterLoadAssignment
	// Namespace of the cluster's Service. It decides which identities may see the cluster; "" is for identities with Scope.All.
	Namespace string
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
	// All namespaces, and clusters without one.
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
