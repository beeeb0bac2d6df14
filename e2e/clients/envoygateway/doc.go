// Package envoygateway tests what a real Envoy Gateway makes of EnvoyPatchPolicies, and what Autohealer writes by them: the whole control plane, Envoy Gateway with its Kubernetes provider, and an
// Envoy that is started as the Deployment says that Envoy Gateway makes for a Gateway. It needs Linux, and the binaries of
// `make envoygateway envoy`.
package envoygateway
