package healthcheck_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// The checks of a provider extension on its Workers.
func Example() {
	mgr := extension()
	worker := schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	err := healthcheck.For(worker, healthcheck.WithType("aws")).
		Check("SystemComponentsHealthy", "mcm-shoot", healthcheck.CheckManagedResource("mcm-shoot")).
		Check("EveryNodeReady", "mcm", healthcheck.CheckSeedDeployment("machine-controller-manager")).
		Check("EveryNodeReady", "nodes", healthcheck.SufficientNodesAvailable()).
		AddToManager(mgr)
	fmt.Println(err)
	// Output: <nil>
}

// coreDNS is a check of an extension's own, which looks at the shoot.
type coreDNS struct{ shoot client.Client }

// InjectShootClient is called before each Check.
func (c *coreDNS) InjectShootClient(shoot client.Client) { c.shoot = shoot }

// Check finds a Service with an address.
func (c *coreDNS) Check(ctx context.Context, _ types.NamespacedName) (*healthcheck.SingleCheckResult, error) {
	var service corev1.Service
	err := c.shoot.Get(ctx, types.NamespacedName{Namespace: "kube-system", Name: "kube-dns"}, &service)
	if client.IgnoreNotFound(err) != nil {
		return nil, err // Unknown: nothing is known of the Service
	}
	if service.Spec.ClusterIP == "" {
		return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionFalse, Detail: "Service kube-dns has no address"}, nil
	}
	return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionTrue}, nil
}

// A check in Go: a fresh one is made for each run.
func ExampleRegistration_Check() {
	dns := schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Extension"}
	registration := healthcheck.For(dns, healthcheck.WithType("dns")).
		Check("SystemComponentsHealthy", "coredns", func() healthcheck.HealthCheck { return &coreDNS{} })
	fmt.Println(registration.AddToManager(extension()))
	// Output: <nil>
}

// What is wrong with a registration is told at once.
func ExampleRegistration_AddToManager() {
	worker := schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Worker"}
	err := healthcheck.For(worker).
		Check("Ready", "mcm", healthcheck.CheckSeedDeployment("machine-controller-manager")).
		AddToManager(nil)
	fmt.Println(errors.Unwrap(err))
	// Output: condition type Ready is its controller's own; choose another
}
