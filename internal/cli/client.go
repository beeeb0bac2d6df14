package cli

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// client talks to the cluster that kubectl's flags name.
func (a *App) client() (client.Client, error) {
	cfg, err := a.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	cfg.QPS = -1 // these are few requests, and whoever stops everything shouldn't wait for a turn of their own
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
