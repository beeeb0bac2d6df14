package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const flipsPerSecond = 20

// trickle flips nodes at an even pace, whatever becomes of those before: problems in the first half, recoveries in the
// second. The latency runs from the API server's answer to the flip until the watch shows the taint come or go.
func (b *bench) trickle(ctx context.Context) error {
	n := min(int(b.size.trickle.Seconds())*flipsPerSecond/2, b.size.nodes)
	b.say("trickle: %d flips and %d recoveries, %d a second", n, n, flipsPerSecond)
	before, began := b.usage(), time.Now()
	var all, flips []time.Duration
	for _, problem := range []bool{true, false} {
		latencies, own, err := b.pacedFlips(ctx, n, problem)
		if err != nil {
			return err
		}
		all, flips = append(all, latencies...), append(flips, own...)
	}
	p50, p99 := quantile(all, .5), quantile(all, .99)
	b.report.absolute(row{what: fmt.Sprintf("trickle: %d flips/s, flip acknowledged → taint on a watch, p50", flipsPerSecond),
		ours: milliseconds(p50), goal: "< 25 ms", reached: p50 < 25*time.Millisecond})
	b.report.absolute(row{what: "the same, p99", ours: milliseconds(p99), goal: "< 150 ms", reached: p99 < 150*time.Millisecond})
	b.report.absolute(row{what: "for comparison, the flips' own requests: p50 and p99", ours: milliseconds(quantile(flips, .5)) + ", " + milliseconds(quantile(flips, .99))})
	b.report.perSecond("trickle", b.usage().since(before), time.Since(began))
	return nil
}

// pacedFlips flips nodes 0 to n-1 and gives how long each took to be tainted or untainted, and each flip itself.
func (b *bench) pacedFlips(ctx context.Context, n int, problem bool) (latencies, flips []time.Duration, err error) {
	acknowledged := make([]time.Time, n)
	flips = make([]time.Duration, n)
	err = paced(ctx, n, flipsPerSecond, func(ctx context.Context, i int) error { // each call has places of its own
		began := time.Now()
		err := b.flip(ctx, i, problem)
		acknowledged[i] = time.Now()
		flips[i] = acknowledged[i].Sub(began)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	want := 0
	if problem {
		want = n
	}
	if _, err := b.sight.awaitTainted(ctx, want); err != nil {
		return nil, nil, err
	}
	latencies = make([]time.Duration, n)
	for i := range latencies {
		seen, _ := b.sight.changedAt(b.nodes[i])
		latencies[i] = max(0, seen.Sub(acknowledged[i])) // a taint can be visible before the flip's answer is read
	}
	return latencies, flips, nil
}

// paced begins one call after the other at an even pace, without waiting for those before to end.
func paced(ctx context.Context, n, perSecond int, do func(context.Context, int) error) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}
