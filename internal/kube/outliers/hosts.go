package outliers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// ErrNoPort says that there is no such Service, or none with such a port.
var ErrNoPort = errors.New("there is no such Service, or it has no such port")

// Hosts are the ready endpoints of a Service's port, which is given by its name or number.
func (i *Informers) Hosts(ctx context.Context, service types.NamespacedName, port string) ([]outlier.Host, error) {
	if !i.Synced() {
		return nil, errors.New("not all Services are read yet")
	}
	objects, err := i.Objects(ctx, service.Namespace)
	if err != nil {
		return nil, err
	}
	for _, svc := range objects.Services {
		if svc.Namespace != service.Namespace || svc.Name != service.Name {
			continue
		}
		for _, p := range svc.Spec.Ports {
			if p.Name == port || strconv.Itoa(int(p.Port)) == port {
				return outlier.HostsOf(svc, p, objects.Slices[service]), nil
			}
		}
	}
	return nil, fmt.Errorf("Service %s, port %s: %w", service, port, ErrNoPort) //nolint:staticcheck // a kind's name begins it
}
