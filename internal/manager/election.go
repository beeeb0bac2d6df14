package manager

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/installation"
)

// election is who acts. The zero value is a manager that is alone and always does.
type election struct {
	lock resourcelock.Interface
	// leads says whether this replica surely leads; nil for always.
	leads func() bool
}

func newElection(config *rest.Config, o options, marker *installation.Marker) (election, error) {
	if !o.leaderElect {
		return election{}, nil
	}
	lock, err := newLeadership(config, o.leaderElectNamespace, lease.Name, lease.RenewDeadline, marker)
	if err != nil {
		return election{}, err
	}
	return election{lock: lock, leads: lock.Held}, nil
}
