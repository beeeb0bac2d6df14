// Package ecosystem is what Autohealer knows of what others write on nodes and run there: what a type of condition means, whose a taint's key
// is, and which pods a node can't do without.
package ecosystem

import (
	"errors"
	"fmt"
	"maps"
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

var builtinTypes = func() map[string]Type {
	types := map[string]Type{}
	for _, k := range knownTypes {
		types[k.Type] = k
	}
	return types
}()

// Types are the node condition types whose meaning is built in, in a fixed order.
func Types() []Type { return slices.Clone(knownTypes) }

// Registry knows the meaning of node condition types: the built-in ones, and those that the cluster's operators declared.
// The zero value knows the built-in ones. It doesn't change.
type Registry struct {
	declared map[string]Type
}

// NewRegistry adds declared types to the built-in ones. Of declarations that can't hold its error tells, one line each,
// and the registry does without them: what a type means that nobody may declare, or that two declare to be the opposite,
// isn't known. Where they agree on health, the more cautious word on the rest holds; the order doesn't matter.
func NewRegistry(declared ...Type) (Registry, error) {
	r := Registry{declared: map[string]Type{}}
	refused := map[string]error{}
	for _, k := range declared {
		was, twice := r.declared[k.Type]
		_, builtin := builtinTypes[k.Type]
		switch {
		case k.Type == "":
			refused[""] = errors.New("a condition type needs a name")
		case builtin:
			refused[k.Type] = fmt.Errorf("condition type %s is built in and can't be declared", k.Type)
		case k.Healthy != corev1.ConditionTrue && k.Healthy != corev1.ConditionFalse:
			refused[k.Type] = fmt.Errorf("condition type %s: a healthy node's status is True or False, not %q", k.Type, k.Healthy)
		case twice && was.Healthy != k.Healthy:
			refused[k.Type] = fmt.Errorf("condition type %s is declared to be healthy at True and at False", k.Type)
		case twice:
			r.declared[k.Type] = was.cautiously(k)
		default:
			r.declared[k.Type] = k
		}
	}
	for t := range refused {
		delete(r.declared, t)
	}
	var all []error
	for _, t := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, refused[t])
	}
	return r, errors.Join(all...)
}

// cautiously joins two declarations: a rule warns that either gives cause to, and the reporter must show that it lives
// unless both say that it can't.
func (k Type) cautiously(other Type) Type {
	k.Reporter = max(k.Reporter, other.Reporter)
	k.Obsolete = k.Obsolete || other.Obsolete
	k.Sticky = k.Sticky || other.Sticky
	k.LogMonitor = k.LogMonitor || other.LogMonitor
	k.NoHeartbeat = k.NoHeartbeat && other.NoHeartbeat
	return k
}

// Names are the types of which somebody said what they mean.
func (r Registry) Names() []string {
	return slices.Concat(slices.Sorted(maps.Keys(builtinTypes)), slices.Sorted(maps.Keys(r.declared)))
}

// Lookup returns what a type means; ok is false when it isn't declared.
func (r Registry) Lookup(conditionType string) (k Type, ok bool) {
	if k, ok = builtinTypes[conditionType]; ok {
		return k, true
	}
	k, ok = r.declared[conditionType]
	return k, ok
}

// Types are all known types: the built-in ones in their order, then the declared ones by name.
func (r Registry) Types() []Type {
	types := Types()
	for _, t := range slices.Sorted(maps.Keys(r.declared)) {
		types = append(types, r.declared[t])
	}
	return types
}

// Equal says whether two registries say the same.
func (r Registry) Equal(other Registry) bool { return maps.Equal(r.declared, other.declared) }
