// Package envoy starts a real Envoy with the configuration that `kubectl autohealer envoy-bootstrap` prints, and listeners of
// the test in front of clusters that it gets over xDS. It tells what Envoy's admin page and log of ejections say. Backends are
// real servers that fail on command.
//
// It needs the binary of `make envoy`. An Envoy doesn't outlive the program that started it, however that ends.
package envoy
