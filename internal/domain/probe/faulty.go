package probe

import corev1 "k8s.io/api/core/v1"

// faults are the conditions by which a node says that it is at fault itself, with the status at which it does. What
// kube-controller-manager makes of a node that it doesn't hear of, Unknown, is none, nor is what says that a network is missing: so
// do nodes that are well and cut off.
var faults = map[corev1.NodeConditionType]corev1.ConditionStatus{
	corev1.NodeReady:          corev1.ConditionFalse, // only the kubelet itself writes this
	corev1.NodeMemoryPressure: corev1.ConditionTrue, corev1.NodeDiskPressure: corev1.ConditionTrue, corev1.NodePIDPressure: corev1.ConditionTrue,
	// node-problem-detector's, of what a kubelet can't do without
	"KernelDeadlock": corev1.ConditionTrue, "ReadonlyFilesystem": corev1.ConditionTrue, "XfsShutdown": corev1.ConditionTrue, "DiskBadBlock": corev1.ConditionTrue,
	"CperHardwareErrorFatal": corev1.ConditionTrue, "KubeletUnhealthy": corev1.ConditionTrue, "ContainerRuntimeUnhealthy": corev1.ConditionTrue,
	// machine-controller-manager's, of a machine that failed or is scaled down, before it drains it
	"Terminating": corev1.ConditionTrue,
}

// annotationUnmanaged is machine-controller-manager's on a node that has no machine: nobody would replace it.
const annotationUnmanaged = "node.machine.sapcloud.io/not-managed-by-mcm"

// Faulty says whether a node gives a reason of its own for not renewing its lease.
func Faulty(node *corev1.Node) bool {
	if _, unmanaged := node.Annotations[annotationUnmanaged]; unmanaged {
		return true
	}
	for _, c := range node.Status.Conditions {
		updating := c.Type == "InPlaceUpdate" && (c.Reason == "ReadyForUpdate" || c.Reason == "UpdateFailed")
		if updating || c.Status != "" && faults[c.Type] == c.Status {
			return true
		}
	}
	return false
}
