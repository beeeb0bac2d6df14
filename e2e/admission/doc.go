// Package admission has end-to-end tests of what users and GitOps tools see of Autohealer on a real API server: what is
// refused and how, what still holds while a gate is away, what status says, and which rights it all needs.
package admission
