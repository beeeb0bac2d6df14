package condition

// SampleSize is how many names a plan, a message source or a status carries at most.
const SampleSize = 20

// Preview is what a set would do if it were in force now. Counts are of nodes; samples are sorted and at most SampleSize.
type Preview struct {
	// Nodes is what the cluster-wide limits count from: nodes neither being deleted nor control plane.
	Nodes int
	// Selected by nodeSelector and includeControlPlane.
	Selected int
	// Matching all members now, whatever `for` says. MatchingNodes samples them.
	Matching      int
	MatchingNodes []string
	// WouldTaint is Matching, cut by the set's own maxNodes.
	WouldTaint int
	// Limit is how many nodes the strictest cluster-wide limit allows for this effect, limit.None when none applies;
	// LimitName says which (maxTaintedNodes, maxEvictingNodes).
	Limit     int
	LimitName string
	// UnionTainted counts the nodes that this set and all other enforcing sets would taint or have tainted, but for
	// PreferNoSchedule, which is free; UnionLimit is maxTaintedNodes in nodes.
	UnionTainted, UnionLimit int
	// UnreportedTypes are members' types that are neither known nor reported by any node.
	UnreportedTypes []string
	// SilentTypes are members' types whose reporter is silent on every node that carries them.
	SilentTypes []string
	// ForeignTainted counts nodes that carry the key without our record. ForeignTaintedNodes samples them.
	ForeignTainted      int
	ForeignTaintedNodes []string
	// ImpliedBy names other sets with the same key whose conditions are a subset of this one's: whenever this set
	// matches, so do they.
	ImpliedBy []string
	// DuplicateOf names other sets with the same type or equal conditions.
	DuplicateOf []string
	// ControlPlaneReady counts Ready control-plane nodes; ControlPlaneReadyAfter what is left of them once this set has
	// evicted the one it may.
	ControlPlaneReady, ControlPlaneReadyAfter int
	// IntolerantSystemPods names system pods ("namespace/name (role)") on selected nodes that don't tolerate the key.
	IntolerantSystemPods []string
}
