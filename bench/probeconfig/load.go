package probeconfig

import (
	"context"
	"time"

	"github.com/resourcestack/autohealer/bench/testbed"
)

const (
	serversRole = "probing-servers"
	proberRole  = "probing-prober"
	bareRole    = "probing-bare"
)

// Roles are the processes of Probing.
var Roles = map[string]testbed.Role{
	serversRole: testbed.RoleOf(serveMany), proberRole: testbed.RoleOf(probeByProber), bareRole: testbed.RoleOf(probeBare),
}

// load is what a process is to probe.
type load struct {
	apiServers
	Targets    int
	Interval   time.Duration
	FreshEvery int
	Duration   time.Duration
}

// cost is what the probes of a process cost in Duration, once all connections had been made.
type cost struct {
	Requests, Failures int
	CPU                time.Duration
	Late               float64 // share of runs that began more than a second after their time
	Heap, Stacks       int     // per target, in bytes
}

// measure lets all connections be made, and measures from then on.
func (l load) measure(ctx context.Context, counts func() (requests, failures int), late func() (late, all uint64)) (cost, error) {
	if err := testbed.Pause(ctx, 2*l.Interval); err != nil {
		return cost{}, err
	}
	requests, failures := counts()
	lateBefore, allBefore := late()
	before := testbed.OwnProcessorTime()
	err := testbed.Pause(ctx, l.Duration)
	spent := testbed.OwnProcessorTime() - before
	requestsAfter, failuresAfter := counts()
	lateAfter, allAfter := late()
	return cost{
		Requests: requestsAfter - requests, Failures: failuresAfter - failures, CPU: spent,
		Late: float64(lateAfter-lateBefore) / float64(max(1, allAfter-allBefore)),
	}, err
}
