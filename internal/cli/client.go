package cli

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
)

// clusterClock is a cluster's: that of its API server, and ours until that has answered. Holds and Leases are times of the
// cluster, and a workstation's clock may be off.
type clusterClock struct {
	server *kube.ServerClock
	ours   clock.PassiveClock
}

func (c clusterClock) Now() time.Time {
	if now := c.server.Now(); !now.IsZero() {
		return now
	}
	return c.ours.Now()
}

func (c clusterClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// restConfig is for the cluster that kubectl's flags name.
func (a *App) restConfig() (*rest.Config, error) {
	cfg, err := a.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (kubectl config view shows what there is; --kubeconfig and --context choose)", err)
	}
	return cfg, nil
}

// client talks to the cluster that kubectl's flags name, and learns its time.
func (a *App) client() (client.Client, error) {
	cfg, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // these are few requests, and whoever stops everything shouldn't wait for a turn of their own
	server := &kube.ServerClock{Clock: a.Clock}
	server.Watch(cfg)
	a.cluster = clusterClock{server, a.Clock}
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("prepare client: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: known})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}
