// Package argocd tests what Argo CD makes of Autohealer: the real one, its repo server and its application controller, with a Git repository by file://, on a
// real control plane. kwok plays the manager's pods; the manager that works is a process, which the API server calls by a URL.
package argocd
