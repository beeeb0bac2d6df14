package health_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var start = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return o
}

// worker is a target with these lines below it.
func worker(t testing.TB, more string) *unstructured.Unstructured {
	return object(t, "apiVersion: extensions.gardener.cloud/v1alpha1\nkind: Worker\nmetadata: {name: w, namespace: shoot--a, generation: 3, resourceVersion: '7', uid: u}\n"+more)
}
