package manager

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

const (
	// targetsRead is one more than what a rule warns of.
	targetsRead = 1001
	// targetsLooked and forecastTakes keep a review well within the webhook's five seconds.
	targetsLooked = 100
	forecastTakes = 2500 * time.Millisecond
)

// newDependents asks the planner of HealthCheckRegistrations. It reads targets live, and not all: they may be of a kind that nothing has
// watched so far.
func newDependents(mgr ctrl.Manager, o options) (*dependents.Survey, error) {
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the client of discovery: %w", err)
	}
	return &dependents.Survey{
		Objects: &dependents.Live{
			Reader: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(), Policy: kubeconfig.Policy{AllowLoopback: o.probeLoopback},
			Schemas: dependents.NewSchemas(openapi.NewClientWithContext(kinds.RESTClient())),
		},
		Stored: func(ctx context.Context) ([]*v1alpha1.HealthCheckRegistration, error) {
			var list v1alpha1.HealthCheckRegistrationList
			if err := mgr.GetCache().List(ctx, &list); err != nil {
				return nil, fmt.Errorf("list HealthCheckRegistrations: %w", err)
			}
			all := make([]*v1alpha1.HealthCheckRegistration, len(list.Items))
			for i := range list.Items {
				all[i] = &list.Items[i]
			}
			return all, nil
		},
		Read: targetsRead, Look: targetsLooked, Within: forecastTakes, Known: &dependents.Known{},
	}, nil
}
