package main

import (
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// render is what Helm makes of the chart: the text of all manifests, and the notes.
func render(t *testing.T, namespace, values string) (manifests, notes string, err error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(root, "charts/autohealer"))
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: "healing", Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return "", "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch filepath.Ext(name) {
		case ".yaml":
			manifests += "---\n" + files[name] + "\n"
		case ".txt":
			notes = files[name]
		}
	}
	return manifests, notes, nil
}

var separator = regexp.MustCompile(`(?m)^---$`)

// read gives the objects of a text by their ids, without what Helm's charts say of each.
func read(t *testing.T, manifests string) map[string]object {
	t.Helper()
	objects := map[string]object{}
	for _, text := range separator.Split(manifests, -1) {
		o := object{}
		if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if len(o) == 0 {
			continue
		}
		if _, twice := objects[o.id()]; twice {
			t.Errorf("%s is there twice", o.id())
		}
		objects[o.id()] = o
		metadata := o["metadata"].(map[string]any)
		without(metadata, "labels", "helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by")
		without(metadata, "annotations", "helm.sh/resource-policy")
	}
	return objects
}

// without removes keys of a map in a field, and it with the last of them.
func without(metadata map[string]any, field string, keys ...string) {
	of, _ := metadata[field].(map[string]any)
	for _, key := range keys {
		delete(of, key)
	}
	if len(of) == 0 {
		delete(metadata, field)
	}
}

func helm(t *testing.T, values string) map[string]object {
	t.Helper()
	manifests, _, err := render(t, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, manifests)
}

// TestTheChartIsTheKustomizations, object by object, apart from the namespace and the check before an uninstall.
func TestTheChartIsTheKustomizations(t *testing.T) {
	for values, kustomizations := range map[string][]string{
		"":                               {"config/default"},
		"certProvider: cert-manager":     {"config/certmanager"},
		"networkPolicy: {enabled: true}": {"config/default", "config/network-policy"},
		"prometheusRule: {enabled: true}\nserviceMonitor: {enabled: true}": {"config/default", "config/prometheus"},
		"dashboards: {enabled: true}":                                      {"config/default", "config/dashboards"},
	} {
		t.Run(strings.Join(kustomizations, "+"), func(t *testing.T) {
			got := helm(t, values)
			for id, o := range got {
				if o.is("*/autohealer-uninstall-check") {
					delete(got, id)
				}
			}
			for _, kustomization := range kustomizations {
				objects, err := build(root, kustomization)
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range objects {
					if o, there := got[want.id()]; want["kind"] != "Namespace" && (!there || !reflect.DeepEqual(o, want)) {
						t.Errorf("%s: the chart has\n%s\n%s has\n%s", want.id(), o.yaml(), kustomization, want.yaml())
					}
					delete(got, want.id())
				}
			}
			for id := range got {
				t.Errorf("%s is in the chart alone", id)
			}
		})
	}
}

// TestAPlaceThatIsNotThereFails: config was changed, and the chart must follow.
func TestAPlaceThatIsNotThereFails(t *testing.T) {
	for _, p := range []place{
		{"A/*", "/spec/other", value("x")},
		{"A/*", "/spec/list/1", value("x")},
		{"A/*", "/spec/list/a", value("x")},
		{"A/*", "/spec/there", optional(".Values.x")},
		{"A/*", "/other/new", optional(".Values.x")},
		{"A/*", "/spec/there/deeper", value("x")},
	} {
		o := object{"kind": "A", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"there": "yes", "list": []any{"one"}}}
		if _, err := template(o, []place{p}, make([]bool, 1), map[string]any{}); err == nil {
			t.Errorf("%s is taken", p.path)
		}
	}
}

func TestBracesOfOthersStay(t *testing.T) {
	o := object{"kind": "A", "metadata": map[string]any{"name": "a"}, "text": "{{ $value }}", "spec": map[string]any{"a": "{{b}}"}}
	text, err := template(o, []place{{"A/a", "/spec", unless(".Values.x", "spec: {}")}}, make([]bool, 1), map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`text: '{{ "{{" }} $value }}'`, `spec: {"a":"{{ "{{" }}b}}"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestTheManifestIsConfigDefault(t *testing.T) {
	text, err := manifest(root, "images.example.org/autohealer:v9")
	if err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "images.example.org/autohealer:v9", "registry.example.com/autohealer:v0.1.0", 1)
	got := read(t, text)
	objects, err := build(root, "config/default")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range objects {
		if !reflect.DeepEqual(got[want.id()], want) {
			t.Errorf("%s differs", want.id())
		}
	}
	if len(got) != len(objects) {
		t.Errorf("%d objects instead of %d", len(got), len(objects))
	}
}
