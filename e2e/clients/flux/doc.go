// Package flux tests what Flux makes of Autohealer: the real one, its source-controller and its kustomize-controller, with a Git repository by http, on a real
// control plane. kwok plays the manager's pods; the manager that works is a process, which the API server calls by a URL.
package flux
