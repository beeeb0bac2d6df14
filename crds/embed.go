// Package crds holds the generated CustomResourceDefinitions.
package crds

import "embed"

// FS holds one YAML file a kind.
//
//go:embed *.yaml
var FS embed.FS
