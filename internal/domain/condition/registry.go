package condition

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// KnownType is a node condition type whose meaning Autohealer knows.
type KnownType struct {
	Type string
	// Healthy is the status of a healthy node.
	Healthy corev1.ConditionStatus
	// Reporter writes the condition.
	Reporter string
	// Obsolete: Kubernetes no longer reports it.
	Obsolete bool
	// Sticky: once True it stays so until its reporter restarts, whatever the node does.
	Sticky bool
	// LogMonitor: read from a log, so never Unknown.
	LogMonitor bool
	// NoHeartbeat: its lastHeartbeatTime doesn't move while the reporter lives; the node's Lease stands in.
	NoHeartbeat bool
}

const (
	reporterKubelet = "kubelet"
	reporterNPD     = "node-problem-detector"
)

// knownTypes: Kubernetes' own conditions, and node-problem-detector's, of which each names a problem.
var knownTypes = []KnownType{
	{Type: "Ready", Healthy: corev1.ConditionTrue, Reporter: reporterKubelet},
	{Type: "MemoryPressure", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet},
	{Type: "DiskPressure", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet},
	{Type: "PIDPressure", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet},
	{Type: "NetworkUnavailable", Healthy: corev1.ConditionFalse, Reporter: "network provider", NoHeartbeat: true},
	{Type: "OutOfDisk", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet, Obsolete: true},
	{Type: "NTPProblem", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "CorruptDockerOverlay2", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "ContainerRuntimeUnhealthy", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "KubeletUnhealthy", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "KernelDeadlock", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "ReadonlyFilesystem", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "FrequentUnregisterNetDevice", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, LogMonitor: true},
	{Type: "FrequentKubeletRestart", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, LogMonitor: true},
	{Type: "FrequentDockerRestart", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, LogMonitor: true},
	{Type: "FrequentContainerdRestart", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, LogMonitor: true},
}

// KnownTypes are the node condition types whose meaning is known, in a fixed order.
func KnownTypes() []KnownType { return slices.Clone(knownTypes) }

func known(conditionType string) (KnownType, bool) {
	for _, k := range knownTypes {
		if k.Type == conditionType {
			return k, true
		}
	}
	return KnownType{}, false
}
