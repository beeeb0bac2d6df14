package manager

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/installation"
)

// newMarker makes what tells whether the cluster is this installation's. Its requests end in time for a renewal of the Lease.
func newMarker(config *rest.Config, o options) (*installation.Marker, error) {
	config = rest.CopyConfig(config)
	config.Timeout = lease.RenewDeadline / 4
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make the client of the installation's mark: %w", err)
	}
	return &installation.Marker{Client: c, Configuration: webhookConfiguration, Namespace: o.namespace}, nil
}

// addMarker has every replica look whose the cluster is. A manager that isn't elected waits here until it is its own.
func addMarker(ctx context.Context, mgr ctrl.Manager, o options, marker *installation.Marker) error {
	if err := installation.RegisterMetrics(); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("installation", marker.Ready); err != nil {
		return fmt.Errorf("add the probe of the installation: %w", err)
	}
	if err := mgr.Add(installation.Watcher{Marker: marker, Cache: mgr.GetCache(), Elected: o.leaderElect}); err != nil {
		return fmt.Errorf("add the watch over the installation's mark: %w", err)
	}
	if o.leaderElect {
		return nil
	}
	return marker.Await(ctx)
}
