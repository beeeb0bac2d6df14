// Package probing probes API servers: many targets, at their times, from a bounded pool of workers. A [Prober] is given
// targets and tells a [Handler] the outcome of each run; what follows from it is decided elsewhere. Its parts are the
// scheduler, which knows nothing of probes, and the client, which knows nothing of time.
package probing
