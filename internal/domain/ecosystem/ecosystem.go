// Package ecosystem is what Autohealer knows of what others write on nodes and run there: what a type of condition means, whose a taint's key
// is, and which pods a node can't do without.
package ecosystem

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
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

// SystemPod is a pod, or a DaemonSet's pods, that a node or its healing can't do without: evict it and the condition
// that led to the eviction freezes, or the node is lost.
type SystemPod struct {
	Namespace, Name string
	// Role is what it does for the node.
	Role        string
	Tolerations []corev1.Toleration
}

func (p SystemPod) String() string { return fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, p.Role) }

// LabelReporter marks the pods of a reporter of node conditions that Autohealer doesn't know by itself.
const LabelReporter = "autohealer.resourcestack.com/reporter"

// roleOfPath recognizes a pod that plugs into the kubelet by its host paths.
var roleOfPath = []struct{ prefix, role string }{
	{"/etc/cni", "CNI"}, {"/opt/cni", "CNI"},
	{"/var/lib/kubelet/plugins_registry", "CSI"}, {"/var/lib/kubelet/plugins", "CSI"},
	{"/dev/kmsg", "condition reporter"},
}

// wholeHost are the paths by which a DaemonSet's pods see all of a node, /dev/kmsg included: it is unknown whether they report something.
// Of others' pods they say nothing: those of kubectl debug have them, too.
var wholeHost = []string{"/", "/dev"}

// SystemRole is what a pod does for its node, "" for an ordinary pod.
func SystemRole(meta *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	switch {
	case meta.Labels[LabelReporter] == "true" || goesBy(meta, "node-problem-detector"):
		return "condition reporter"
	case goesBy(meta, "kube-proxy"):
		return "Service proxy"
	}
	owner := metav1.GetControllerOfNoCopy(meta)
	everywhere := owner != nil && owner.Kind == "DaemonSet"
	for _, v := range spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		at := path.Clean(v.HostPath.Path)
		for _, r := range roleOfPath {
			if at == r.prefix || strings.HasPrefix(at, r.prefix+"/") {
				return r.role
			}
		}
		if everywhere && slices.Contains(wholeHost, at) {
			return "sees the whole host"
		}
	}
	return ""
}

// goesBy says whether a pod's name, or a label that names what it runs, has the text.
func goesBy(meta *metav1.ObjectMeta, text string) bool {
	return strings.Contains(meta.Name, text) || strings.Contains(meta.Labels["app.kubernetes.io/name"]+" "+meta.Labels["app"]+" "+meta.Labels["k8s-app"], text)
}

// SystemPodOf represents the pods of a DaemonSet; is says whether a node can't do without them.
func SystemPodOf(ds *appsv1.DaemonSet) (p SystemPod, is bool) {
	pod := &ds.Spec.Template
	p = SystemPod{Namespace: ds.Namespace, Name: ds.Name, Tolerations: pod.Spec.Tolerations}
	p.Role = SystemRole(&metav1.ObjectMeta{
		Name: ds.Name, Namespace: ds.Namespace, Labels: pod.Labels, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
	}, &pod.Spec)
	return p, p.Role != ""
}

// Intolerant names the pods that a NoExecute taint of this key would evict, now or after their tolerationSeconds.
func Intolerant(pods []SystemPod, key string) []string {
	taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
	var names []string
	for _, p := range pods {
		tolerates := slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool {
			return t.TolerationSeconds == nil && t.ToleratesTaint(klog.Background(), &taint, false)
		})
		if !tolerates {
			names = append(names, p.String())
		}
	}
	slices.Sort(names)
	return names
}

// keyOwner is a program that puts taints of its own on nodes.
type keyOwner struct {
	// of is a domain, with a dot before it, which includes its subdomains; or a key without a domain.
	of string
	// owner as people call it.
	owner string
	// never: no such taint is ever ours, whatever a record and a stored set say.
	never bool
}

// actedOn are keys that their owners read back: they remove what they don't expect, or delete the node. No set may have one.
var actedOn = []keyOwner{
	{of: ".kubernetes.io", owner: "Kubernetes", never: true},
	{of: ".k8s.io", owner: "Kubernetes", never: true},
	{of: ".x-k8s.io", owner: "Cluster API and other projects of Kubernetes"},
	{of: "ToBeDeletedByClusterAutoscaler", owner: "Cluster Autoscaler", never: true},
	{of: "DeletionCandidateOfClusterAutoscaler", owner: "Cluster Autoscaler", never: true},
	{of: ".karpenter.sh", owner: "Karpenter", never: true},
	{of: ".karpenter.k8s.aws", owner: "Karpenter for AWS"},
	{of: ".karpenter.azure.com", owner: "Karpenter for Azure"},
	{of: ".eks.amazonaws.com", owner: "Amazon EKS"},
	{of: ".csi.aws.com", owner: "the CSI drivers of AWS"},
	{of: ".csi.azure.com", owner: "the CSI drivers of Azure"},
	{of: ".aws-node-termination-handler", owner: "AWS Node Termination Handler"},
	{of: ".cloud.google.com", owner: "Google Kubernetes Engine"},
	{of: ".gke.io", owner: "Google Kubernetes Engine"},
	{of: ".kubernetes.azure.com", owner: "Azure Kubernetes Service"},
	{of: ".cilium.io", owner: "Cilium"},
	{of: ".machine.sapcloud.io", owner: "machine-controller-manager"},
	{of: ".node.gardener.cloud", owner: "Gardener"},
	{of: ".medik8s.io", owner: "the remediators of medik8s"},
}

// leaving are the keys, or with a slash at one end all of that domain or that name, of taints by which nodes aren't there for pods yet, or
// any more. Other taints of their owners say whose pods a node is for, which is no loss.
var leaving = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
	corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeOutOfService,
	"node.cloudprovider.kubernetes.io/", "node.cluster.x-k8s.io/uninitialized", "ToBeDeletedByClusterAutoscaler",
	"karpenter.sh/disrupted", "karpenter.sh/disruption", "karpenter.sh/unregistered", "aws-node-termination-handler/",
	"cloud.google.com/impending-node-termination", "remediator.kubernetes.azure.com/", "node.gardener.cloud/critical-components-not-ready",
	"medik8s.io/", "/agent-not-ready", // Cilium, and the CSI drivers of AWS and Azure
}

// shared are keys by which pools are dedicated: their pods tolerate them, so that a taint keeps none of those away.
var shared = []keyOwner{
	{of: ".nvidia.com", owner: "the NVIDIA device plugin"},
	{of: ".amd.com", owner: "the AMD device plugin"},
	{of: ".gpu.intel.com", owner: "the Intel device plugins"},
	{of: ".aws.amazon.com", owner: "the AWS Neuron device plugin"},
	{of: ".habana.ai", owner: "the Habana device plugin"},
	{of: "CriticalAddonsOnly", owner: "pools for system pods"},
}

// ActedOnKeys gives, for rules, what belongs to somebody who acts on it, with the owner: domains with a dot before them, and keys
// without a domain.
func ActedOnKeys() map[string]string { return ownersOf(actedOn) }

// SharedKeys gives, in the same manner, what a set may use, though hardly to its ends.
func SharedKeys() map[string]string { return ownersOf(shared) }

func ownersOf(table []keyOwner) map[string]string {
	owners := map[string]string{}
	for _, k := range table {
		owners[k.of] = k.owner
	}
	return owners
}

// ReservedKey says whether somebody else acts on taints of a key, so that no set may have it.
func ReservedKey(key string) bool { return ownedByOthers(key, func(keyOwner) bool { return true }) }

// NeverOurs says whether a taint of a key is somebody else's whatever a record says.
func NeverOurs(key string) bool { return ownedByOthers(key, func(k keyOwner) bool { return k.never }) }

func ownedByOthers(key string, which func(keyOwner) bool) bool {
	domain, _, slash := strings.Cut(key, "/")
	return slices.ContainsFunc(actedOn, func(k keyOwner) bool {
		return which(k) && (key == k.of || slash && k.of[0] == '.' && strings.HasSuffix("."+domain, k.of))
	})
}

// Leaves says whether a taint keeps pods away because its node isn't there for them yet, or any more.
func Leaves(t corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule && slices.ContainsFunc(leaving, func(key string) bool {
		return t.Key == key || key[len(key)-1] == '/' && strings.HasPrefix(t.Key, key) || key[0] == '/' && strings.HasSuffix(t.Key, key)
	})
}
