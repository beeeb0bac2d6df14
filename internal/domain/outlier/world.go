package outlier

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// World is what a policy is previewed against. Of a policy that isn't the cluster's default its own namespace is enough, with
// the policies of Autohealer's.
type World struct {
	Services []*corev1.Service
	// Slices by the Service that they are of.
	Slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	Policies []*v1alpha1.OutlierPolicy
	Routes   []Route
	// Unread are the kinds of routes of which isn't known which there are.
	Unread map[string]bool
}

// Outlook is what a policy would mean if it were in force now.
type Outlook struct {
	// Clusters that it would hold for, by their names.
	Clusters []ClusterOutlook
	// Overridden are clusters of its targets for which another one holds.
	Overridden []ClusterOutlook
	// Missing targets aren't there, Empty have no ready endpoints, External are of type ExternalName. Conflicts are targets that
	// another policy has, OverTLS what routes send to over TLS, so that there are no clusters. They are empty for a default.
	Missing, Empty, External, Conflicts, OverTLS []string
}

// ClusterOutlook is a cluster and what could be done to it.
type ClusterOutlook struct {
	*Assignment
	Hosts []Host
	// Ejectable is how many hosts may be ejected at once.
	Ejectable int
}

// EjectsEverything says whether all hosts may be ejected at once while nothing sends traffic to them all the same.
func (c *ClusterOutlook) EjectsEverything() bool {
	return c.Policy.Detects() && c.Policy.Settings.EjectsEverything(len(c.Hosts))
}

// Inert says whether nobody can be ejected, though there are hosts and the policy is meant to.
func (c *ClusterOutlook) Inert() bool {
	return c.Policy.Detects() && !c.Policy.Settings.Observe && len(c.Hosts) > 0 && c.Ejectable == 0
}

// Undetected says whether Envoy counts errors that can't happen: over bytes alone there are only its own.
func (c *ClusterOutlook) Undetected() bool {
	return c.Policy.Detects() && c.TCP && c.Policy.Settings.Split && c.Policy.Settings.LocalOriginThreshold() == 0
}

// OutlookOf tells what a policy would mean in place of a stored one of its name. A spec that can't be read gives that error.
func OutlookOf(op *v1alpha1.OutlierPolicy, w World, ownNamespace string) (Outlook, error) {
	p, err := NewPolicy(op)
	if err != nil {
		return Outlook{}, err
	}
	policies := []*Policy{p}
	for _, other := range w.Policies {
		if other.Namespace == p.Namespace && other.Name == p.Name {
			p.Created, p.UID = other.CreationTimestamp.Time, other.UID
			continue
		}
		if o, err := NewPolicy(other); err == nil && other.DeletionTimestamp == nil {
			policies = append(policies, o)
		}
	}
	v := &viewer{policy: p, world: w, index: NewIndex(policies, w.Routes, ownNamespace)}
	for _, svc := range w.Services {
		v.service(svc)
	}
	for _, all := range [][]ClusterOutlook{v.outlook.Clusters, v.outlook.Overridden} { // a cache has no order
		slices.SortFunc(all, func(a, b ClusterOutlook) int { return compareText(a.Key, b.Key) })
	}
	for _, ref := range p.Targets {
		v.target(ref)
	}
	return v.outlook, nil
}

type viewer struct {
	policy  *Policy
	world   World
	index   *Index
	outlook Outlook
}

func (v *viewer) service(svc *corev1.Service) {
	name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
	for _, a := range v.index.Assign(svc, nil) {
		c := ClusterOutlook{Assignment: a}
		switch {
		case a.Policy == v.policy:
			c.Hosts = HostsOf(svc, a.Port, v.world.Slices[name])
			if v.policy.Detects() {
				c.Ejectable = v.policy.Settings.Ejectable(len(c.Hosts))
			}
			v.outlook.Clusters = append(v.outlook.Clusters, c)
		case slices.Contains(a.Overridden, v.policy):
			v.outlook.Overridden = append(v.outlook.Overridden, c)
		}
	}
}

// target finds out what is the matter with a target.
func (v *viewer) target(ref v1alpha1.OutlierTargetReference) {
	o, text := &v.outlook, TargetText(ref)
	for _, other := range v.index.of(v.policy.Namespace).byTarget[keyOf(ref)] {
		if other != v.policy {
			o.Conflicts = append(o.Conflicts, fmt.Sprintf("%s: OutlierPolicy %s", text, other.Name))
		}
	}
	if over := v.index.OverTLS(v.policy.Namespace, ref, v.world.Services); over != "" {
		o.OverTLS = append(o.OverTLS, fmt.Sprintf("%s to %s", text, over))
	}
	found := v.index.find(v.policy.Namespace, ref, v.world.Services)
	switch {
	case len(found.Ports) == 0 && found.External:
		o.External = append(o.External, text)
	case len(found.Ports) == 0:
		o.Missing = append(o.Missing, text)
	case !slices.ContainsFunc(found.Ports, v.ready):
		o.Empty = append(o.Empty, text)
	}
}

func (v *viewer) ready(p servicePort) bool {
	return len(HostsOf(p.Service, p.Port, v.world.Slices[types.NamespacedName{Namespace: p.Service.Namespace, Name: p.Service.Name}])) > 0
}

// servicePort is a port with its Service.
type servicePort struct {
	Service *corev1.Service
	Port    corev1.ServicePort
}

// foundTarget are the ports that a target stands for. External: some of its Services is of type ExternalName.
type foundTarget struct {
	Ports    []servicePort
	External bool
}

// find the ports that a target stands for.
func (x *Index) find(namespace string, ref v1alpha1.OutlierTargetReference, services []*corev1.Service) (found foundTarget) {
	for _, b := range x.meant(namespace, ref) {
		i := slices.IndexFunc(services, func(s *corev1.Service) bool { return s.Namespace == namespace && s.Name == b.Service })
		if i < 0 {
			continue
		}
		if services[i].Spec.Type == corev1.ServiceTypeExternalName {
			found.External = true
			continue
		}
		for _, port := range services[i].Spec.Ports {
			if (b.Port == 0 || b.Port == port.Port) && isSection(port, ref.SectionName) && overTCP(port) {
				found.Ports = append(found.Ports, servicePort{services[i], port})
			}
		}
	}
	return found
}

// meant are the Services of a target, with port 0 for all of one's.
func (x *Index) meant(namespace string, ref v1alpha1.OutlierTargetReference) []Backend {
	if ref.Kind == kindService {
		return []Backend{{Service: ref.Name}}
	}
	r := x.of(namespace).routes[RouteKey{ref.Kind, ref.Name}]
	if r == nil {
		return nil
	}
	if ref.Backend == nil {
		return r.Backends
	}
	return slices.DeleteFunc(slices.Clone(r.Backends), func(b Backend) bool { return b.Service != ref.Backend.Name || b.Port != ref.Backend.Port })
}

// isSection says whether a section names a port: by its name, or by its number where it has none.
func isSection(port corev1.ServicePort, section string) bool {
	return section == "" || section == port.Name || port.Name == "" && section == fmt.Sprint(port.Port)
}

// TargetText names a target for people.
func TargetText(ref v1alpha1.OutlierTargetReference) string {
	text := ref.Kind + " " + ref.Name
	if ref.SectionName != "" {
		text += ", port " + ref.SectionName
	}
	if ref.Backend != nil {
		text += fmt.Sprintf(", backend %s:%d", ref.Backend.Name, ref.Backend.Port)
	}
	return text
}
