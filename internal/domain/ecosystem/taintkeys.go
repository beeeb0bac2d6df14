package ecosystem

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
