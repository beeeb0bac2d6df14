// Package clients tests what installs Autohealer beside kubectl: Helm, with the chart, on a real control plane. kwok plays the chart's pods; the manager that
// works is a process, which API servers call by a URL, and this plays the kubelet of the Job before an uninstall.
package clients
