package main

import (
	"context"
	"fmt"
	"time"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// restart stops the manager with 100 nodes tainted and changes half of them meanwhile: 50 recover, 50 others fall sick,
// so that 100 writes are due and no more. Converged is when the watch has shown them all.
func (b *bench) restart(ctx context.Context) error {
	const tainted, changed = 100, 50
	b.say("restart with %d nodes, %d of them tainted", b.size.nodes, tainted)
	if err := b.flipAll(ctx, 0, tainted, true); err != nil {
		return err
	}
	if _, err := b.sight.awaitTainted(ctx, tainted); err != nil {
		return err
	}
	b.notePeak()
	if err := b.StopComponent(harness.Manager); err != nil {
		return err
	}
	if err := b.flipAll(ctx, 0, changed, false); err != nil {
		return err
	}
	if err := b.flipAll(ctx, tainted, tainted+changed, true); err != nil {
		return err
	}
	since, err := b.auditEnd()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.startManager(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	converged, err := b.sight.awaitNodes(ctx, b.nodes[:tainted+changed], func(i int, tainted bool) bool { return tainted == (i >= changed) }, stormPatience)
	if err != nil {
		return err
	}
	if err := b.reportRestart(since, ready, converged.Sub(began), 2*changed); err != nil {
		return err
	}
	if err := b.flipAll(ctx, 0, tainted+changed, false); err != nil {
		return err
	}
	_, err = b.sight.awaitTainted(ctx, 0)
	return err
}

func (b *bench) reportRestart(since int64, ready, converged time.Duration, due int) error {
	writes, err := b.managerWrites(since)
	if err != nil {
		return err
	}
	redundant := len(nodeWrites(writes)) - due
	b.report.absolute(row{what: fmt.Sprintf("restart with %d nodes: ready (caches full, webhook served)", b.size.nodes), ours: seconds(ready)})
	b.report.absolute(row{what: fmt.Sprintf("restart: converged, with %d changes missed", due), ours: seconds(converged), goal: "< 10 s", reached: converged < 10*time.Second})
	b.report.absolute(row{what: "restart: redundant writes to nodes", ours: fmt.Sprint(redundant), goal: "0", reached: redundant == 0})
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
