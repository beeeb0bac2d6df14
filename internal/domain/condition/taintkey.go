package condition

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// keyOwner is a program that puts taints of its own on nodes.
type keyOwner struct {
	// of is a domain, with a dot before it, which stands for its subdomains too; or a key without a domain.
	of string
	// owner as people call it.
	owner string
	// leaves are the keys, or with a slash at the end all keys of a domain, that say that a node isn't there for pods yet or any
	// more. Others say whose pods it is for, which is no loss.
	leaves []string
}

// actedOn are keys that their owners read back: they remove what they don't expect, or delete the node. Autohealer neither sets nor
// removes such a taint, whatever a record says.
var actedOn = []keyOwner{
	{of: ".kubernetes.io", owner: "Kubernetes", leaves: []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}},
	{of: ".k8s.io", owner: "Kubernetes"},
	{of: ".x-k8s.io", owner: "Cluster API and other projects of Kubernetes", leaves: []string{"node.cluster.x-k8s.io/uninitialized"}},
	{of: "ToBeDeletedByClusterAutoscaler", owner: "Cluster Autoscaler", leaves: []string{"ToBeDeletedByClusterAutoscaler"}},
	{of: "DeletionCandidateOfClusterAutoscaler", owner: "Cluster Autoscaler"},
	{of: ".karpenter.sh", owner: "Karpenter", leaves: []string{"karpenter.sh/disrupted", "karpenter.sh/disruption", "karpenter.sh/unregistered"}},
	{of: ".karpenter.k8s.aws", owner: "Karpenter for AWS"},
	{of: ".karpenter.azure.com", owner: "Karpenter for Azure"},
	{of: ".eks.amazonaws.com", owner: "Amazon EKS"},
	{of: ".csi.aws.com", owner: "the CSI drivers of AWS", leaves: []string{"ebs.csi.aws.com/agent-not-ready", "efs.csi.aws.com/agent-not-ready"}},
	{of: ".aws-node-termination-handler", owner: "AWS Node Termination Handler", leaves: []string{"aws-node-termination-handler/"}},
	{of: ".cloud.google.com", owner: "Google Kubernetes Engine", leaves: []string{"cloud.google.com/impending-node-termination"}},
	{of: ".gke.io", owner: "Google Kubernetes Engine"},
	{of: ".kubernetes.azure.com", owner: "Azure Kubernetes Service", leaves: []string{"remediator.kubernetes.azure.com/"}},
	{of: ".cilium.io", owner: "Cilium", leaves: []string{"node.cilium.io/agent-not-ready"}},
	{of: ".machine.sapcloud.io", owner: "machine-controller-manager"},
	{of: ".node.gardener.cloud", owner: "Gardener", leaves: []string{"node.gardener.cloud/critical-components-not-ready"}},
	{of: ".medik8s.io", owner: "the remediators of medik8s", leaves: []string{"medik8s.io/"}},
}

// shared are keys by which pools are dedicated: their pods tolerate them, so that a taint keeps none of those away.
var shared = []keyOwner{
	{of: ".nvidia.com", owner: "the NVIDIA device plugin"},
	{of: ".amd.com", owner: "the AMD device plugin"},
	{of: ".gpu.intel.com", owner: "the Intel device plugins"},
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

// Reserved says whether somebody else acts on taints of a key.
func Reserved(key string) bool {
	domain, _, slash := strings.Cut(key, "/")
	return slices.ContainsFunc(actedOn, func(k keyOwner) bool {
		return key == k.of || slash && k.of[0] == '.' && strings.HasSuffix("."+domain, k.of)
	})
}

// leaves says whether a taint keeps pods away because its node isn't there for them yet, or any more.
func leaves(t corev1.Taint) bool {
	if t.Effect == corev1.TaintEffectPreferNoSchedule {
		return false
	}
	return slices.ContainsFunc(actedOn, func(k keyOwner) bool {
		return slices.ContainsFunc(k.leaves, func(key string) bool {
			return t.Key == key || strings.HasSuffix(key, "/") && strings.HasPrefix(t.Key, key)
		})
	})
}
