// Package weederconfig deletes crash-looping pods after the Service that they depend on recovered. The Observer keeps the
// planner's state up to date on every replica; on the leader the PodReconciler plans and acts, and a policy.Keeper writes
// status. A window has no goroutine or object of its own: it is an entry in that state. Begin at AddToManager, then
// PodReconciler.Reconcile.
package weederconfig
