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
