// Package kube holds what every controller shares of talking to the API server: clocks (clocks.go), live checks before an act
// (generations.go, stored.go), watches, queues, status writes and Events. Begin at Facts.
package kube
