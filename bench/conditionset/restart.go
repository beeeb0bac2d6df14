package conditionset

import (
	"context"
	"fmt"
	"time"

	"github.com/resourcestack/autohealer/bench/report"
)

// Restart stops the manager with 100 nodes tainted and changes half of them meanwhile: 50 recover, 50 others fall sick, so that 100
// writes are due and no more. Converged is when the watch has shown them all.
func (b *Bench) Restart(ctx context.Context) error {
	const tainted, changed = 100, 50
	b.Say("restart with %d nodes, %d of them tainted", b.Nodes, tainted)
	if err := b.flipAll(ctx, 0, tainted, true); err != nil {
		return err
	}
	if _, err := b.awaitTainted(ctx, tainted, true); err != nil {
		return err
	}
	var since int64
	var began time.Time
	if err := b.WithoutManager(ctx, func() (err error) {
		if err := b.flipAll(ctx, 0, changed, false); err != nil {
			return err
		}
		if err := b.flipAll(ctx, tainted, tainted+changed, true); err != nil {
			return err
		}
		since, err = b.AuditEnd()
		began = time.Now()
		return err
	}); err != nil {
		return err
	}
	ready := time.Since(began)
	converged, err := b.watch.AwaitEach(ctx, tainted+changed, nodeName, func(i int, tainted bool) bool { return tainted == (i >= changed) })
	if err != nil {
		return err
	}
	if err := b.reportRestart(since, ready, converged.Sub(began), 2*changed); err != nil {
		return err
	}
	if err := b.flipAll(ctx, 0, tainted+changed, false); err != nil {
		return err
	}
	_, err = b.awaitTainted(ctx, 0, false)
	return err
}

func (b *Bench) reportRestart(since int64, ready, converged time.Duration, due int) error {
	writes, err := b.Writes(since)
	if err != nil {
		return err
	}
	redundant := len(toNodes(writes)) - due
	b.Report.Value(fmt.Sprintf("restart with %d nodes: ready (caches full, webhook served)", b.Nodes), report.Seconds(ready))
	b.Report.Checked(fmt.Sprintf("restart: converged, with %d changes missed", due), report.Seconds(converged), "< 10 s", converged < 10*time.Second)
	b.Report.Checked("restart: redundant writes to nodes", fmt.Sprint(redundant), "0", redundant == 0)
	return nil
}
