// Package config is what installs Autohealer, as kustomizations; in Go there are only its tests.
package config
