package outlier

import (
	"fmt"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// SampleSize bounds the lists of a preview.
const SampleSize = 20

// Preview is what rules see of an Outlook. Counts are of all; samples are at most SampleSize, in the order of the clusters.
type Preview struct {
	// Unreadable says why the spec can't be read; then nothing else is known.
	Unreadable string
	// Clusters that the policy would hold for, and their ready Hosts.
	Clusters, Hosts int
	// EjectsEverything of them might lose all of their hosts at once.
	EjectsEverything      int
	EjectsEverythingNames []string
	// Inert of them have hosts, of which none can be ejected.
	Inert      int
	InertNames []string
	// Undetected of them are for TCP, where nothing but Envoy's own errors happens, which aren't counted.
	Undetected      int
	UndetectedNames []string
	// MissingTargets, EmptyTargets, ExternalTargets and Conflicts are targets that aren't there, have no ready endpoints, are of
	// type ExternalName, or have a policy already. OverTLSTargets are what routes send to over TLS.
	MissingTargets, EmptyTargets, ExternalTargets, OverTLSTargets, Conflicts []string
	// Ejected is how many hosts some Envoy has ejected now for the stored policy of this name.
	Ejected int
}

// PreviewOf tells what a policy would mean in place of a stored one of its name.
func PreviewOf(op *v1alpha1.OutlierPolicy, w World, ownNamespace string) Preview {
	o, err := OutlookOf(op, w, ownNamespace)
	if err != nil {
		return Preview{Unreadable: err.Error()}
	}
	p := Preview{
		Clusters: len(o.Clusters), MissingTargets: o.Missing, EmptyTargets: o.Empty, ExternalTargets: o.External, OverTLSTargets: o.OverTLS,
		Conflicts: o.Conflicts[:min(len(o.Conflicts), SampleSize)],
	}
	for i := range o.Clusters {
		c := &o.Clusters[i]
		p.Hosts += len(c.Hosts)
		c.count(c.EjectsEverything(), &p.EjectsEverything, &p.EjectsEverythingNames)
		c.count(c.Inert(), &p.Inert, &p.InertNames)
		c.count(c.Undetected(), &p.Undetected, &p.UndetectedNames)
	}
	for _, stored := range w.Policies {
		if stored.Namespace == op.Namespace && stored.Name == op.Name {
			p.Ejected = int(or(stored.Status.Ejected, 0))
		}
	}
	return p
}

func (c *ClusterOutlook) count(is bool, n *int, names *[]string) {
	if !is {
		return
	}
	if *n++; len(*names) < SampleSize {
		hosts := fmt.Sprintf("%d hosts", len(c.Hosts))
		if len(c.Hosts) == 1 {
			hosts = "1 host"
		}
		*names = append(*names, fmt.Sprintf("%s (%s)", c.Key, hosts))
	}
}
