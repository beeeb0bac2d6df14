package outlier

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Objects are what policies are translated and forecast from. For a policy that isn't the cluster's default its own namespace is enough,
// with the policies of Autohealer's.
type Objects struct {
	Services []*corev1.Service
	// Slices by their Service.
	Slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	Policies []*v1alpha1.OutlierPolicy
	Routes   []Route
	// Unread are the kinds of routes whose informers aren't synced.
	Unread map[string]bool
}

// servicePort is a port with its Service.
type servicePort struct {
	Service *corev1.Service
	Port    corev1.ServicePort
}

// foundTarget are the ports that a target selects. External: one of its Services is of type ExternalName. Portless are its Services without
// a TCP port.
type foundTarget struct {
	Ports    []servicePort
	External bool
	Portless []string
}

// missing is what doesn't exist of a target without ports, as text: the target itself, or the TCP ports of its Services.
func (f foundTarget) missing(target string) string {
	if len(f.Portless) > 0 {
		return "TCP port of Service " + strings.Join(f.Portless, ", ")
	}
	return target
}

// find returns the ports that a target selects.
func (x *Index) find(namespace string, ref v1alpha1.OutlierTargetReference, services []*corev1.Service) (found foundTarget) {
	for _, b := range x.backendsOf(namespace, ref) {
		i := slices.IndexFunc(services, func(s *corev1.Service) bool { return s.Namespace == namespace && s.Name == b.Service })
		if i < 0 {
			continue
		}
		if services[i].Spec.Type == corev1.ServiceTypeExternalName {
			found.External = true
			continue
		}
		if !slices.ContainsFunc(services[i].Spec.Ports, overTCP) {
			found.Portless = append(found.Portless, b.Service)
		}
		for _, port := range services[i].Spec.Ports {
			if (b.Port == 0 || b.Port == port.Port) && isSection(port, ref.SectionName) && overTCP(port) {
				found.Ports = append(found.Ports, servicePort{services[i], port})
			}
		}
	}
	return found
}

// backendsOf are the Services of a target, with port 0 for all ports.
func (x *Index) backendsOf(namespace string, ref v1alpha1.OutlierTargetReference) []Backend {
	if ref.Kind == kindService {
		return []Backend{{Service: ref.Name}}
	}
	r := x.namespace(namespace).routes[RouteKey{ref.Kind, ref.Name}]
	if r == nil {
		return nil
	}
	if ref.Backend == nil {
		return r.Backends
	}
	return slices.DeleteFunc(slices.Clone(r.Backends), func(b Backend) bool { return b.Service != ref.Backend.Name || b.Port != ref.Backend.Port })
}

// isSection says whether a section name selects a port: by its name, or by its number where it has none.
func isSection(port corev1.ServicePort, section string) bool {
	return section == "" || section == port.Name || port.Name == "" && section == fmt.Sprint(port.Port)
}

// TargetText is a target's name in messages.
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
