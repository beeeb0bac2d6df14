// Package catalog holds the built-in rules.
package catalog

import "embed"

// FS holds one YAML file a kind.
//
//go:embed *.yaml
var FS embed.FS
