package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PolicyOf is what Guardrails say, as the planner of ConditionSets reads it.
var PolicyOf = policyOf

// Add takes in an object as reading the cluster does.
func (s *Snapshot) Add(object client.Object) {
	if s.Workloads == nil {
		s.Workloads = &Workloads{}
	}
	switch o := object.(type) {
	case *corev1.Node:
		s.addNode(o)
	case *corev1.Pod:
		s.Workloads.addPod(o)
	case *discoveryv1.EndpointSlice:
		s.Workloads.addSlice(o)
	}
}
