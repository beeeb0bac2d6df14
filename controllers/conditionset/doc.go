// Package conditionset turns ConditionSets into node taints. The Observer keeps the fleet's state up to date on every
// replica; on the leader the NodeReconciler plans and acts, and a policy.Keeper writes finalizers and status. Begin at
// AddToManager, then NodeReconciler.Reconcile.
package conditionset
