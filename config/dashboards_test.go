package config_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestGrafanasSidecarFindsAllDashboards(t *testing.T) {
	var is corev1.ConfigMap
	if err := yaml.UnmarshalStrict(kustomize(t, "dashboards"), &is); err != nil {
		t.Fatal(err)
	}
	if is.Name != "autohealer-dashboards" || is.Labels["grafana_dashboard"] != "1" {
		t.Errorf("name %s, labels %v", is.Name, is.Labels)
	}
	for _, file := range must(filepath.Glob("dashboards/*.json")) {
		if is.Data[filepath.Base(file)] != string(readFile(t, file)) {
			t.Errorf("the ConfigMap lacks %s", file)
		}
	}
}
