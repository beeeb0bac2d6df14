package survey

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// serviceOf is the Service of the cluster that a server is, where it is one that a target in the namespace might scale
// down: by its DNS name, or by an address of its own.
func (s *Survey) serviceOf(ctx context.Context, namespace, server string) (types.NamespacedName, error) {
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("read the address of a server: %w", err)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if service := s.byName(host); service.Name != "" {
			return service, nil
		}
	}
	name, err := s.Cluster.ServiceAt(ctx, namespace, host)
	if name == "" {
		return types.NamespacedName{}, err
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, err
}

// byName reads a Service's DNS name: name.namespace.svc, with the cluster's domain behind it or without, name.namespace, or
// the name alone, which is looked up in Autohealer's own namespace. Another name of two parts is taken for one, too; then no
// pod is behind it.
func (s *Survey) byName(host string) types.NamespacedName {
	parts := strings.Split(host, ".")
	switch {
	case len(parts) == 1:
		return types.NamespacedName{Namespace: s.OwnNamespace, Name: host}
	case len(parts) == 2, parts[2] == "svc":
		return types.NamespacedName{Namespace: parts[1], Name: parts[0]}
	}
	return types.NamespacedName{}
}
