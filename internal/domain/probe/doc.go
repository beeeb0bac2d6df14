// Package probe decides what follows from probing one API server from two sides: from inside the network of its control
// plane, and from where its nodes are. It is pure: time comes in as an argument, and nothing here dials, reads or writes.
//
// A Target is a namespace that a config probes. All that happens to it is an Event, and Next(event) gives the Target after it with
// what follows:
//
//	Followed, Recalled   its config is new, changed or doesn't select it any more; a record of what was taken was found
//	Supplied, Halted     its probes run with these Secrets, or can't; they don't run
//	Ran                  a run of its probes ended: State counts it, and has a Direction: Hold, Down or Up
//	Looked               its dependents were read
//	Taking, Doubted      replicas are about to be taken; nobody knows whether a write was done
//	Planned, Rested      what was done about its dependents; nothing is to be done
//	Ended                its namespace is gone
//
// In between its owner makes a pass: Scaling gathers what is known, NothingToDo says that there is nothing to do; else the dependents are
// read, PlanScaling says what to write to each of them, and the Fleet, which is all targets, says whether this one may be scaled now.
package probe
