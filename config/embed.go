// Package config is what installs Autohealer, as kustomizations. In Go there are only its tests, and what the plugin compares
// an installation with.
package config

import "embed"

// FS holds the manager's rights, the roles for people, the webhook's configuration and the admission policies.
//
//go:embed rbac/*.yaml webhook/configuration/validating.yaml policy/*.yaml
var FS embed.FS
