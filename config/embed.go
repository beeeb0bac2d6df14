// Package config is what installs Autohealer, as kustomizations. In Go there are only its tests, and what the plugin compares
// an installation with.
package config

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// FS holds all that an installation may have, but for the CRDs.
//
//go:embed rbac/*.yaml webhook policy/*.yaml manager/*.yaml network-policy/*.yaml certmanager/component/*.yaml prometheus/*.yaml
var FS embed.FS

// Objects are those in the files that match a pattern (fs.Glob's): of these kinds, or all when none are named. An error names the
// file that can't be read.
func Objects(from fs.FS, pattern string, kinds ...string) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(from, pattern)
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			isObject := o.GetKind() != "" // and not a document of comments
			if isObject && (len(kinds) == 0 || slices.Contains(kinds, o.GetKind())) {
				found = append(found, o)
			}
		}
	}
	return found, nil
}
