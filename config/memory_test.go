package config_test

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// TestTheCollectorKnowsTheLimitOfMemory: a heap may double between two collections, which the kernel would end.
func TestTheCollectorKnowsTheLimitOfMemory(t *testing.T) {
	text, err := os.ReadFile("manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(text, d); err != nil {
		t.Fatal(err)
	}
	container := d.Spec.Template.Spec.Containers[0]
	limit := container.Resources.Limits.Memory().Value()
	for _, env := range container.Env {
		if env.Name != "GOMEMLIMIT" {
			continue
		}
		quantity := resource.MustParse(strings.TrimSuffix(env.Value, "B"))
		if soft := quantity.Value(); soft < limit*8/10 || soft > limit*9/10 {
			t.Errorf("GOMEMLIMIT %d isn't between eight and nine tenths of the limit %d", quantity.Value(), limit)
		}
		return
	}
	t.Error("GOMEMLIMIT isn't set")
}
