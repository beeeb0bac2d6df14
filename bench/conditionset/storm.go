package conditionset

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/resourcestack/autohealer/bench/report"
)

// mostFlipsWithTaints is on how many nodes at most: a flip and a taint of each, there and back, cost four writes.
const mostFlipsWithTaints = 2000

// rates are nodes tainted and untainted a second, one of each a round, and the processor time of all rounds.
type rates struct {
	up, down report.Series
	spent    report.Usage
}

// Storm compares how fast taints come and go with how fast the same patches can be written at all. Every condition is
// flipped beforehand, in both cases; what starts the storm is that all sets, which only observed, enforce. The time runs
// from before the first set is changed until the watch has shown the last taint, so it has 50 changes of sets in it, 50
// reviews of them, and all status, Events and live checks of the storm itself. The bare loop runs while no manager does, and once more,
// with taints of others, beside a manager that watches: what lies between the two is what watching costs. Who comes first changes from
// round to round.
func (b *Bench) Storm(ctx context.Context) error {
	b.Say("storm: %d taints at once, %d rounds against the bare loop", b.Nodes, b.Rounds)
	if err := b.enforce(ctx, false); err != nil {
		return err
	}
	if err := b.flipAll(ctx, 0, b.Nodes, true); err != nil {
		return err
	}
	b.Say("all conditions are flipped; the rounds begin")
	var reference *bareLoop
	var ours, bare, watched rates
	turns := []func() error{
		func() error {
			since, err := b.AuditEnd()
			if err != nil {
				return err
			}
			if err := b.round(ctx, &ours, b.Nodes, b.enforce); err != nil || reference != nil {
				return err
			}
			reference, err = b.newBareLoop(ctx, since)
			return err
		},
		func() error {
			return b.WithoutManager(ctx, func() error { return b.round(ctx, &bare, b.Nodes, reference.patchAll) })
		},
		func() error { return b.round(ctx, &watched, b.Nodes, reference.foreign().patchAll) },
	}
	for round := range b.Rounds {
		for i := range turns {
			if err := turns[(round+i)%len(turns)](); err != nil {
				return err
			}
		}
	}
	b.reportStorm(ours, bare, watched)
	if err := b.settle(ctx); err != nil {
		return err
	}
	return b.flipsWithTaints(ctx, reference)
}

// round taints so many nodes and untaints them, by something that begins either.
func (b *Bench) round(ctx context.Context, into *rates, nodes int, begin func(ctx context.Context, taint bool) error) error {
	before := b.Usage()
	for _, taint := range []bool{true, false} {
		began := time.Now()
		group, groupCtx := errgroup.WithContext(ctx)
		group.Go(func() error { return begin(ctx, taint) })
		var last time.Time
		group.Go(func() (err error) {
			last, err = b.awaitTainted(groupCtx, nodes, taint)
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		series := &into.down
		if taint {
			series = &into.up
		}
		*series = append(*series, float64(nodes)/last.Sub(began).Seconds())
	}
	into.spent.Add(b.Usage().Since(before))
	return nil
}

// settle takes all problems back and lets the sets enforce again.
func (b *Bench) settle(ctx context.Context) error {
	if err := b.flipAll(ctx, 0, b.Nodes, false); err != nil {
		return err
	}
	if err := b.enforce(ctx, true); err != nil {
		return err
	}
	if _, err := b.awaitTainted(ctx, b.Nodes, false); err != nil {
		return err
	}
	return b.renewSets(ctx)
}

func (b *Bench) reportStorm(ours, bare, watched rates) {
	enough := report.AtLeast(.85)
	b.Report.Ratio(fmt.Sprintf("storm: %d taints, flips written before, taints/s", b.Nodes), "%.0f", ours.up, bare.up, enough)
	b.Report.Ratio("the same undone, untaints/s", "%.0f", ours.down, bare.down, enough)
	b.Report.Ratio("storm against a bare loop with taints of others, while the manager watches the nodes and its sets observe, taints/s", "%.0f", ours.up, watched.up, nil)
	b.Report.Ratio("the same undone, untaints/s", "%.0f", ours.down, watched.down, nil)
	writes := float64(2 * b.Nodes * len(ours.up))
	own, reference := report.Series{1000 * ours.spent.Total().Seconds() / writes}, report.Series{1000 * bare.spent.Total().Seconds() / writes}
	b.Report.RatioOf("processor time of all processes for one such write, ms; ratio: reference by ours, the storm's where processors are the limit",
		own.Text("%.2f"), reference.Text("%.2f"), reference.Over(own), enough)
	b.Report.Cost("storm, for each taint and untaint, ours", ours.spent, writes)
	b.Report.Cost("the same, bare loop while no manager runs", bare.spent, writes)
	b.Report.Cost("the same, bare loop with taints of others while the manager watches", watched.spent, writes)
}

// flipsWithTaints is the storm as it comes: conditions flip and taints follow at the same time. The reference does both, too.
func (b *Bench) flipsWithTaints(ctx context.Context, reference *bareLoop) error {
	n := min(mostFlipsWithTaints, b.Nodes)
	b.Say("storm from flip to taint: %d flips with their taints following", n)
	var ours, bare rates
	for range b.Rounds {
		if err := b.round(ctx, &ours, n, func(ctx context.Context, up bool) error { return b.flipAll(ctx, 0, n, up) }); err != nil {
			return fmt.Errorf("the manager's storm: %w", err)
		}
		if err := b.WithoutManager(ctx, func() error {
			return b.round(ctx, &bare, n, func(ctx context.Context, up bool) error { return reference.flipAndPatch(ctx, n, up) })
		}); err != nil {
			return fmt.Errorf("the bare loop: %w", err)
		}
		if err := b.renewSets(ctx); err != nil {
			return err
		}
	}
	enough := report.AtLeast(.85)
	b.Report.Ratio(fmt.Sprintf("storm: %d flips and their taints at once, nodes/s from first flip to last taint", n), "%.0f", ours.up, bare.up, enough)
	b.Report.Ratio("the same in reverse: recoveries and untaints", "%.0f", ours.down, bare.down, enough)
	b.Report.Cost("flips and taints, there and back, for each node, ours", ours.spent, float64(2*n*b.Rounds))
	b.Report.Cost("the same, bare loops", bare.spent, float64(2*n*b.Rounds))
	return nil
}
