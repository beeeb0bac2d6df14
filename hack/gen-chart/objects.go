package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// sources are kustomizations. Of each the chart has the objects that none before it has.
var sources = []string{"config/default", "config/certmanager", "config/network-policy", "config/prometheus", "config/dashboards", "hack/gen-chart/objects"}

// object is one of Kubernetes, as JSON has it.
type object map[string]any

func build(root, kustomization string) (objects []object, err error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, kustomization))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", kustomization, err)
	}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return nil, err
		}
		o := object{}
		if err := yaml.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// ofChart are the objects of all sources. The namespace is Helm's, or whoever's who made it: Helm would
// delete it with all that is in it.
func ofChart(root string) (objects []object, err error) {
	there := map[string]bool{}
	for _, source := range sources {
		built, err := build(root, source)
		if err != nil {
			return nil, err
		}
		for _, o := range built {
			if !there[o.id()] && o["kind"] != "Namespace" {
				objects = append(objects, o)
			}
			there[o.id()] = true
		}
	}
	return objects, nil
}

func (o object) meta(field string) string {
	text, _ := o["metadata"].(map[string]any)[field].(string)
	return text
}

func (o object) id() string {
	return fmt.Sprint(o["kind"], "/", o.meta("namespace"), "/", o.meta("name"))
}

// is says whether an object is of a pattern such as Deployment/autohealer-* or */*.
func (o object) is(pattern string) bool {
	matches, err := path.Match(pattern, fmt.Sprint(o["kind"], "/", o.meta("name")))
	return matches && err == nil
}

// put sets what stands at a JSON pointer, and gives what stood there. Something must stand there; if put adds, nothing may, but the
// place that it is in must be there.
func (o object) put(pointer string, value any, adds bool) (was any, err error) {
	_, was, err = put(map[string]any(o), strings.Split(pointer, "/")[1:], value, adds)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", o.id(), pointer, err)
	}
	return was, nil
}

func put(node any, pointer []string, value any, adds bool) (after, was any, err error) {
	if len(pointer) == 0 {
		return value, node, nil
	}
	key := strings.NewReplacer("~1", "/", "~0", "~").Replace(pointer[0])
	added := adds && len(pointer) == 1
	switch n := node.(type) {
	case map[string]any:
		if _, there := n[key]; there == added {
			return nil, nil, fmt.Errorf("%s is there: %t", key, there)
		}
		n[key], was, err = put(n[key], pointer[1:], value, adds)
		return n, was, err
	case []any:
		if key == "-" && added {
			return append(n, value), nil, nil
		}
		i, err := strconv.Atoi(key)
		if err != nil || i >= len(n) || added {
			return nil, nil, fmt.Errorf("there is no item %s", key)
		}
		n[i], was, err = put(n[i], pointer[1:], value, adds)
		return n, was, err
	}
	return nil, nil, errors.New("there is nothing of the kind")
}

// at gives what stands at a JSON pointer; nil where there is nothing.
func (o object) at(pointer string) any {
	was, err := o.put(pointer, nil, false)
	if err == nil {
		_, _ = o.put(pointer, was, false)
	}
	return was
}

func (o object) yaml() string { return toYAML(map[string]any(o)) }

func toYAML(of any) string {
	text, err := yaml.Marshal(of)
	if err != nil {
		panic(err) // it was read from YAML, or is written in this program
	}
	return string(text)
}

// toJSON is of one line, and YAML too.
func toJSON(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // as above
	}
	return string(text)
}
