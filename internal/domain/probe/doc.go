// Package probe decides what follows from probing one API server from two sides: from inside the network of its control
// plane, and from where its nodes are. It is pure: time comes in as an argument, and nothing here dials, reads or writes.
package probe
