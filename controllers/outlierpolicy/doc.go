// Package outlierpolicy translates OutlierPolicies into Envoy clusters and endpoints and serves them. Every replica translates all
// policies and serves the result by internal/xds; the leader patches Gateways of Envoy Gateway and writes statuses.
//
//	informers ──> staleNamespaces ──> policySnapshot ──> translate ──> actuate.Clusters ──> Envoys
//	                                        │
//	                                        └──> patcher (EnvoyPatchPolicies), keeper (statuses, Events)
//
// A cluster that Envoys were sent is recorded (Record) and served until live reads find its Service or route gone:
//
//	served ──(informers don't have its object)──> missing ──(deletionConfirmer: live NotFound)──> gone ──> removed
//	   ^──────────(object is back)──────────────────┘
//
// Begin to read at Publisher.publish.
package outlierpolicy
