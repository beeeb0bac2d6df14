// Package kube holds small helpers that every controller shares: clocks that can be trusted, live checks before an act,
// informers' events, queues, status writing.
package kube
