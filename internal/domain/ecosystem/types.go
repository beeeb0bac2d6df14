// Package ecosystem is what Autohealer knows of what others write on nodes and run there: what a type of condition means, whose a taint's key
// is, and which pods a node can't do without.
package ecosystem

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Type is a node condition type whose meaning Autohealer knows.
type Type struct {
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
	// NoHeartbeat: its lastHeartbeatTime doesn't move while the reporter lives; the node's Lease replaces it.
	NoHeartbeat bool
}

const (
	reporterKubelet = "kubelet"
	reporterNPD     = "node-problem-detector"
	reporterEKS     = "EKS node monitoring agent"
)

// knownTypes: Kubernetes' own conditions; those of node-problem-detector's configurations, of which each names a problem
// (testdata/node-problem-detector.tsv has them with their source); and those of Amazon EKS's node monitoring agent, of which none does
// (docs.aws.amazon.com/eks/latest/userguide/node-health-nma.html).
var knownTypes = []Type{
	{Type: "Ready", Healthy: corev1.ConditionTrue, Reporter: reporterKubelet},
	{Type: "MemoryPressure", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet},
	{Type: "DiskPressure", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet},
	{Type: "PIDPressure", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet},
	{Type: "NetworkUnavailable", Healthy: corev1.ConditionFalse, Reporter: "network provider", NoHeartbeat: true},
	{Type: "OutOfDisk", Healthy: corev1.ConditionFalse, Reporter: reporterKubelet, Obsolete: true},
	{Type: "NTPProblem", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "CorruptDockerOverlay2", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true}, // by its log monitor; its counter may say Unknown
	{Type: "ContainerRuntimeUnhealthy", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "KubeletUnhealthy", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "KernelDeadlock", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "ReadonlyFilesystem", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "XfsShutdown", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "CperHardwareErrorFatal", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "DiskBadBlock", Healthy: corev1.ConditionFalse, Reporter: reporterNPD, Sticky: true, LogMonitor: true},
	{Type: "FrequentUnregisterNetDevice", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "FrequentKubeletRestart", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "FrequentDockerRestart", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "FrequentContainerdRestart", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "KubeProxyUnhealthy", Healthy: corev1.ConditionFalse, Reporter: reporterNPD},
	{Type: "KernelReady", Healthy: corev1.ConditionTrue, Reporter: reporterEKS},
	{Type: "NetworkingReady", Healthy: corev1.ConditionTrue, Reporter: reporterEKS},
	{Type: "StorageReady", Healthy: corev1.ConditionTrue, Reporter: reporterEKS},
	{Type: "ContainerRuntimeReady", Healthy: corev1.ConditionTrue, Reporter: reporterEKS},
	{Type: "AcceleratedHardwareReady", Healthy: corev1.ConditionTrue, Reporter: reporterEKS},
}

// SlowHeartbeat says that its reporter renews the heartbeat of what doesn't change every five minutes, unless another period is configured.
func (k Type) SlowHeartbeat() bool {
	return k.Reporter == reporterKubelet || k.Reporter == reporterNPD
}

// Types are the node condition types whose meaning is built in, in a fixed order.
func Types() []Type { return slices.Clone(knownTypes) }

// TypeNames are the names of Types, in the same order.
func TypeNames() []string {
	names := make([]string, len(knownTypes))
	for i, k := range knownTypes {
		names[i] = k.Type
	}
	return names
}

// Lookup returns what a type means; ok is false when it isn't built in.
func Lookup(conditionType string) (k Type, ok bool) {
	i := slices.IndexFunc(knownTypes, func(k Type) bool { return k.Type == conditionType })
	if i < 0 {
		return Type{}, false
	}
	return knownTypes[i], true
}
