// Package xds serves clusters and their endpoints to Envoys: ADS, delta and state of the world, CDS and EDS.
//
// What is served is set as a whole (Server.Set) and published by difference: a cluster that says what it said before is
// not sent again, to nobody. Versions are hashes of contents, so another replica, or this one after a restart, sends a
// reconnecting Envoy only what differs.
//
// An Envoy is never wiped. No stream is served before the first Set; a cluster that is merely missing stays; one that is
// confirmed to be gone goes, unless too many would go at a time.
//
// Each stream belongs to the identity in its client's certificate and sees only what that identity may see. What a client
// says of itself, its node, is never read, and the names that it brings decide about nothing but its own stream.
//
// The protocol is go-control-plane's. Its caches are not used: on each change they look at everything that every client
// has subscribed to. A table here knows for each stream what has changed since it was last told.
package xds
