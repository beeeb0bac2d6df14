package manager

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseName = "autohealer-manager"
	// leaseDuration is after how long without renewal a standby takes over; renewDeadline is after how long a leader that
	// can't renew stops acting. What lies between is for the writes that were sent before.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
)

// election is who acts. The zero value is a manager that is alone and always does.
type election struct {
	lock resourcelock.Interface
	// leads says whether this replica surely leads; nil for always.
	leads func() bool
}

func newElection(config *rest.Config, o options, ours func(context.Context) error) (election, error) {
	if !o.leaderElect {
		return election{}, nil
	}
	lock, err := newLeadership(config, o.leaderElectNamespace, leaseName, renewDeadline, ours)
	if err != nil {
		return election{}, err
	}
	return election{lock: lock, leads: lock.Held}, nil
}
