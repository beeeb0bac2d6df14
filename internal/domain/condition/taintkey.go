package condition

import "strings"

// ReservedDomains and ReservedKeys belong to Kubernetes and to the autoscalers: other programs act on such taints, so
// Autohealer neither sets nor removes one, whatever a record says.
var (
	ReservedDomains = []string{"kubernetes.io", "k8s.io", "karpenter.sh"}
	ReservedKeys    = []string{"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"}
)

// Reserved says whether a taint key belongs to somebody else by convention: the reserved domains with their
// subdomains (node.cloudprovider.kubernetes.io among them), and the reserved keys.
func Reserved(key string) bool {
	prefix, _, slash := strings.Cut(key, "/")
	if !slash {
		prefix = ""
	}
	for _, d := range ReservedDomains {
		if prefix == d || strings.HasSuffix(prefix, "."+d) {
			return true
		}
	}
	for _, k := range ReservedKeys {
		if key == k {
			return true
		}
	}
	return false
}
