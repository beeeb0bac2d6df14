package main

import (
	"context"
	"fmt"
)

// healthMemory tells what targets take of the manager's heap, first without shoots and then what shoots take beside.
func (b *bench) healthMemory(ctx context.Context, empty int) error {
	if err := b.healthRest(ctx, targetSilence); err != nil { // the memory of what is kept, not of what is being looked at
		return err
	}
	full, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	perTarget := (full - empty) / max(1, b.size.workers)
	b.report.absolute(row{what: fmt.Sprintf("health: memory a target with 3 dependents, on the manager's heap after a collection, with %d", b.size.workers),
		ours: kib(perTarget), goal: "≤ 15 KiB", reached: perTarget <= 15<<10})
	stacks, err := b.liveStacks(ctx)
	if err != nil {
		return err
	}
	shoots, err := b.addShoots(ctx)
	if err != nil {
		return err
	}
	if err := b.healthRest(ctx, targetSilence); err != nil {
		return err
	}
	withShoots, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	stacksWith, err := b.liveStacks(ctx)
	if err != nil {
		return err
	}
	n := max(1, b.size.shoots)
	b.report.absolute(row{what: fmt.Sprintf("health: memory a target with a shoot of its own, of which one object is watched, with %d", b.size.shoots),
		ours: fmt.Sprintf("%s (and %s of stacks)", kib((withShoots-full)/n), kib((stacksWith-stacks)/n))})
	if _, err := b.Kubectl(ctx, "delete", "healthcheckregistration", "bench-shoots", "--timeout=2m"); err != nil {
		return err
	}
	_, err = shoots.await(ctx, "", b.size.shoots)
	return err
}

func kib(bytes int) string { return fmt.Sprintf("%.1f KiB", float64(bytes)/1024) }
