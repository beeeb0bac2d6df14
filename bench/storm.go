package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// stormPatience bounds each wave; a machine with much else to do still does fifty nodes a second.
const stormPatience = 4 * time.Minute

// storm compares how fast taints come and go with how fast the same patches can be written at all. Every condition is
// flipped beforehand, in both cases; what starts the storm is that all sets, which only observed, enforce. The time runs
// from before the first set is changed until the watch has shown the last taint, so it has 50 changes of sets in it, 50
// reviews of them, and all status, Events and live checks of the storm itself.
func (b *bench) storm(ctx context.Context) (*raw, error) {
	b.say("storm: %d taints at once, %d rounds against the bare loop", b.size.nodes, b.size.rounds)
	if err := b.setMode(ctx, v1alpha1.Observe); err != nil {
		return nil, err
	}
	if err := b.flipAll(ctx, 0, b.size.nodes, true); err != nil {
		return nil, err
	}
	b.say("all conditions are flipped; the rounds begin")
	var reference *raw
	ours, bare := waves{spent: usage{}}, waves{spent: usage{}}
	for range b.size.rounds {
		since, err := b.auditEnd()
		if err != nil {
			return nil, err
		}
		if err := ours.round(ctx, b, b.size.nodes, func(up bool) error { return b.setMode(ctx, modes[up]) }); err != nil {
			return nil, fmt.Errorf("the manager's storm: %w", err)
		}
		if reference == nil {
			if reference, err = b.rawFromAudit(ctx, since); err != nil {
				return nil, err
			}
		}
		if err := b.withoutManager(ctx, func() error {
			return bare.round(ctx, b, b.size.nodes, func(up bool) error { return reference.all(ctx, reference.patches(up)) })
		}); err != nil {
			return nil, fmt.Errorf("the bare loop: %w", err)
		}
	}
	b.reportStorm(ours, bare)
	return reference, b.settle(ctx)
}

var modes = map[bool]v1alpha1.Mode{true: v1alpha1.Enforce, false: v1alpha1.Observe}

// waves are rates of taints that came and went, in nodes a second, one of each a round, and what they took.
type waves struct {
	up, down series
	spent    usage
}

// round taints so many nodes and untaints them.
func (w *waves) round(ctx context.Context, b *bench, nodes int, begin func(up bool) error) error {
	before := b.usage()
	up, err := b.wave(ctx, nodes, nodes, func() error { return begin(true) })
	if err != nil {
		return err
	}
	w.up = append(w.up, up)
	down, err := b.wave(ctx, nodes, 0, func() error { return begin(false) })
	w.down = append(w.down, down)
	w.spent.add(b.usage().since(before))
	return err
}

// wave begins something that taints or untaints so many nodes, and gives how many a second until the watch shows all.
func (b *bench) wave(ctx context.Context, nodes, tainted int, begin func() error) (perSecond float64, err error) {
	began := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(begin)
	var last time.Time
	group.Go(func() (err error) {
		last, err = b.sight.awaitTainted(groupCtx, tainted)
		return err
	})
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return float64(nodes) / last.Sub(began).Seconds(), nil
}

func (r *raw) patches(up bool) map[string][]byte {
	if up {
		return r.taint
	}
	return r.untaint
}

func (b *bench) rawFromAudit(ctx context.Context, since int64) (*raw, error) {
	writes, err := b.managerWrites(since)
	if err != nil {
		return nil, err
	}
	var patches int
	for _, w := range nodeWrites(writes) {
		patches += len(w.body)
	}
	b.say("  the manager made %d writes to nodes of %d bytes on average, and %d others",
		len(nodeWrites(writes)), patches/max(1, len(nodeWrites(writes))), len(writes)-len(nodeWrites(writes)))
	return b.newRaw(ctx, writes)
}

// withoutManager stops the manager meanwhile: the reference must not pay for it.
func (b *bench) withoutManager(ctx context.Context, do func() error) error {
	b.notePeak()
	if err := b.StopComponent(harness.Manager); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return b.startManager(ctx)
}

// settle takes all problems back and lets the sets enforce again.
func (b *bench) settle(ctx context.Context) error {
	if err := b.flipAll(ctx, 0, b.size.nodes, false); err != nil {
		return err
	}
	if err := b.setMode(ctx, v1alpha1.Enforce); err != nil {
		return err
	}
	_, err := b.sight.awaitTainted(ctx, 0)
	return err
}

func (b *bench) reportStorm(ours, bare waves) {
	b.report.ratio(row{
		what: fmt.Sprintf("storm: %d taints, flips written before, taints/s", b.size.nodes), ours: ours.up.text("%.0f"), reference: bare.up.text("%.0f"),
		ratio: ours.up.over(bare.up), goal: "≥ 0.85", reached: ours.up.over(bare.up).median() >= 0.85,
	})
	b.report.ratio(row{
		what: "the same undone, untaints/s", ours: ours.down.text("%.0f"), reference: bare.down.text("%.0f"),
		ratio: ours.down.over(bare.down), goal: "≥ 0.85", reached: ours.down.over(bare.down).median() >= 0.85,
	})
	writes := float64(2 * b.size.nodes * len(ours.up))
	least := series{bare.spent.total().Seconds()}.over(series{ours.spent.total().Seconds()})
	b.report.ratio(row{
		what: "processor time of all processes for one such write, ms; ratio: reference by ours, the storm's where processors are the limit",
		ours: fmt.Sprintf("%.2f", 1000*ours.spent.total().Seconds()/writes), reference: fmt.Sprintf("%.2f", 1000*bare.spent.total().Seconds()/writes),
		ratio: least, goal: "≥ 0.85", reached: least.median() >= 0.85,
	})
	b.report.cost("storm, for each taint and untaint, ours", ours.spent, writes)
	b.report.cost("the same, bare loop", bare.spent, writes)
}
