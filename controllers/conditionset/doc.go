// Package conditionset turns ConditionSets into node taints. The Observer keeps what is known up to date on every
// replica; on the leader the node reconciler plans and acts, and the set reconciler keeps finalizers and status.
package conditionset
