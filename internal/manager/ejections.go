package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/probing/envoys"
)

// envoyServices are whose endpoints are Envoys that are asked whom they have ejected.
type envoyServices []envoyService

type envoyService struct {
	types.NamespacedName
	port string
}

// add reads one.
func (all *envoyServices) add(value string) error {
	parts := strings.Split(value, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return fmt.Errorf("%q is not NAMESPACE/SERVICE/PORT", value)
	}
	*all = append(*all, envoyService{types.NamespacedName{Namespace: parts[0], Name: parts[1]}, parts[2]})
	return nil
}

// newAsker asks Envoys whom they have ejected; nil when none is to be asked.
func newAsker(o envoyOptions, routed *outliers.Informers, serving certificate) *envoys.Asker {
	if len(o.ejectionsFrom) == 0 {
		return nil
	}
	return &envoys.Asker{
		Clock: clock.RealClock{},
		Identity: envoys.Identity{
			Certificate: current(serving), EnvoyCAs: o.readClientCA,
			Scope: func(name string) (ejection.Scope, bool) {
				scope, may := o.clients[name]
				return ejection.Scope{All: scope.All, Namespaces: scope.Namespaces}, may
			},
		},
		Endpoints: func(ctx context.Context) ([]envoys.Endpoint, []string, error) {
			return o.ejectionsFrom.endpoints(ctx, routed.Hosts)
		},
	}
}

// endpoints are the Envoys behind the Services, and what leads to none.
func (all *envoyServices) endpoints(ctx context.Context, hosts func(context.Context, types.NamespacedName, string) ([]outlier.Host, error)) (found []envoys.Endpoint, missing []string, err error) {
	for _, s := range *all {
		behind, err := hosts(ctx, s.NamespacedName, s.port)
		switch {
		case errors.Is(err, outliers.ErrNoPort):
			missing = append(missing, err.Error())
		case err != nil:
			return nil, nil, err
		case len(behind) == 0:
			missing = append(missing, fmt.Sprintf("Service %s has no ready endpoints", s.NamespacedName))
		}
		for _, h := range behind {
			e := envoys.Endpoint{Name: s.Namespace + "/" + h.Pod, Address: net.JoinHostPort(h.Address, strconv.FormatUint(uint64(h.Port), 10))}
			if h.Pod == "" {
				e.Name = e.Address
			}
			found = append(found, e)
		}
	}
	return found, missing, nil
}
