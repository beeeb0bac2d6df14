// Package outlier turns OutlierPolicies into Envoy's clusters and endpoints: which policy holds for which cluster, what Envoy
// is told, and what that could do. It is pure: what it knows of the cluster it is given.
package outlier
