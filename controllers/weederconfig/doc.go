// Package weederconfig deletes crash-looping pods after the Service that they depend on recovered. The Observer keeps what
// is known up to date on every replica; on the leader the pod reconciler plans and acts, and the config reconciler keeps
// status. Nothing runs for a single window: opening one is an entry in what the Observer knows.
package weederconfig
