// Package outlier translates OutlierPolicies into Envoy clusters and endpoints, and into patches for Envoy Gateway: an Index finds which
// policy holds for which cluster (Assign), EffectivePolicy says which stays in force in a pause or freeze, NewCluster and NewEndpoints
// make Envoy's messages, and ForecastOf says what a policy would do. It is pure: its inputs are Objects and PatchObjects.
//
// Of several policies for a cluster the most specific holds, and of equally specific ones the oldest:
//
//	cluster's default < namespace's default < route < Service < Service's port < route's backend
//
// Begin to read at Index.Assign.
package outlier
