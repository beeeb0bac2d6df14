package healthcheck_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

func TestOfOneKindAndTypeThereMayBeSeveralRegistrations(t *testing.T) {
	mgr := extension()
	add := func(group string, options ...healthcheck.Option) error {
		kind := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Named"}
		return healthcheck.For(kind, options...).Check("X", "x", healthcheck.CheckSeedDeployment("d")).AddToManager(mgr)
	}
	few := healthcheck.WithType("few")
	for _, err := range []error{
		add("example.org"), add("example.com"), add("example.org", few),
		add("example.org", few, healthcheck.WithClasses("shoot")), add("example.org", few, healthcheck.WithClasses("seed", "garden")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := add("example.org", few, healthcheck.WithClasses("shoot")); err == nil {
		t.Error("one may be there twice")
	}

	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var controllers []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); f.GetName() == "autohealer_healthcheck_breaker_open" && labels[len(labels)-1].GetValue() == "Named" {
				controllers = append(controllers, labels[0].GetValue())
			}
		}
	}
	slices.Sort(controllers)
	if want := []string{
		"healthcheck-named.example.com", "healthcheck-named.example.org", "healthcheck-named.example.org-few",
		"healthcheck-named.example.org-few-seed-garden", "healthcheck-named.example.org-few-shoot",
	}; !slices.Equal(controllers, want) {
		t.Errorf("breakers are of %q", controllers)
	}
}
