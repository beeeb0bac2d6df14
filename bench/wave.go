package main

import (
	"context"
	"fmt"
)

// togetherNodes is on how many nodes at most: a flip and a taint of each, there and back, cost four writes.
const togetherNodes = 2000

// together is the storm as it comes: conditions flip and taints follow at the same time. The reference does both, too: a
// bare loop flips, and hands each flipped node to a second one that sends the manager's patch.
func (b *bench) together(ctx context.Context, reference *raw) error {
	n := min(togetherNodes, b.size.nodes)
	b.say("storm from flip to taint: %d flips with their taints following", n)
	ours, bare := waves{spent: usage{}}, waves{spent: usage{}}
	if err := ours.round(ctx, b, n, func(up bool) error { return b.flipAll(ctx, 0, n, up) }); err != nil {
		return fmt.Errorf("the manager's storm: %w", err)
	}
	if err := b.withoutManager(ctx, func() error {
		return bare.round(ctx, b, n, func(up bool) error { return b.flipAndPatch(ctx, n, reference, up) })
	}); err != nil {
		return fmt.Errorf("the bare loop: %w", err)
	}
	up, down := ours.up.over(bare.up), ours.down.over(bare.down)
	b.report.ratio(row{
		what: fmt.Sprintf("storm: %d flips and their taints at once, nodes/s from first flip to last taint", n),
		ours: ours.up.text("%.0f"), reference: bare.up.text("%.0f"), ratio: up, goal: "≥ 0.85", reached: up.median() >= 0.85,
	})
	b.report.ratio(row{
		what: "the same in reverse: recoveries and untaints", ours: ours.down.text("%.0f"), reference: bare.down.text("%.0f"),
		ratio: down, goal: "≥ 0.85", reached: down.median() >= 0.85,
	})
	nodes := float64(2 * n)
	b.report.cost("flips and taints, there and back, for each node, ours", ours.spent, nodes)
	b.report.cost("the same, bare loops", bare.spent, nodes)
	return nil
}

// flipAndPatch runs both bare loops, each `writers` wide.
func (b *bench) flipAndPatch(ctx context.Context, n int, reference *raw, problem bool) error {
	flipped := make(chan int, n)
	failed := make(chan error, 1)
	go func() {
		failed <- each(ctx, n, func(ctx context.Context, _ int) error {
			select {
			case i := <-flipped:
				return reference.patch(ctx, b.nodes[i], reference.patches(problem)[b.nodes[i]])
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	err := each(ctx, n, func(ctx context.Context, i int) error {
		if err := b.flip(ctx, i, problem); err != nil {
			return err
		}
		flipped <- i
		return nil
	})
	if err != nil {
		return err // the other loop ends with the benchmark's context
	}
	return <-failed
}
