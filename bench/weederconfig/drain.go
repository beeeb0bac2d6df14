package weederconfig

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
)

const (
	// drained is how many pods crash-loop when the last Service recovers.
	drained = 2000
	// deletionsAtOnce are asked of the API server, as many as the manager does.
	deletionsAtOnce = 32
)

func drainService(round int) string { return fmt.Sprintf("drained-%d", round) }

// drain lets many pods crash-loop for one Service and measures how fast they go, against a bare loop over as many others: one
// while no manager runs, and one while it watches them and has nothing to do. Who comes first changes from round to round.
func (b *Bench) drain(ctx context.Context) error {
	b.Say("weeder: %d crash-looping pods of one Service, %d rounds", drained, b.Rounds)
	clients, err := b.AsManager(ctx)
	if err != nil {
		return err
	}
	var alone, watched, ours drainRates
	turns := []func(round int) error{
		func(round int) error { return b.drainOurs(ctx, round, &ours) },
		func(round int) error {
			return b.WithoutManager(ctx, func() error { return b.drainBare(ctx, clients, fmt.Sprintf("alone-%d", round), &alone) })
		},
		func(round int) error { return b.drainBare(ctx, clients, fmt.Sprintf("watched-%d", round), &watched) },
	}
	for round := range b.Rounds {
		for i := range turns {
			if err := turns[(round+i)%len(turns)](round); err != nil {
				return err
			}
		}
	}
	b.reportDrain(alone, watched, ours)
	return nil
}

func (b *Bench) reportDrain(alone, watched, ours drainRates) {
	b.Report.Ratio(fmt.Sprintf("drain: %d crash-looping pods after one recovery, deletions/s, against a bare loop while no manager runs", drained),
		"%.0f", ours.perSecond, alone.perSecond, report.AtLeast(.85))
	b.Report.Ratio("the same against a bare loop while the manager watches the pods", "%.0f", ours.perSecond, watched.perSecond, nil)
	n := float64(drained * b.Rounds)
	b.Report.Cost("a deletion in the drain, ours", ours.spent, n)
	b.Report.Cost("the same, bare loop while no manager runs", alone.spent, n)
	b.Report.Cost("the same, bare loop while the manager watches", watched.spent, n)
}

// drainRates are of all rounds of one way to delete.
type drainRates struct {
	perSecond report.Series
	spent     report.Usage
}

func (d *drainRates) add(took time.Duration, spent report.Usage) {
	d.perSecond = append(d.perSecond, drained/took.Seconds())
	d.spent.Add(spent)
}

// fillDrain makes pods crash-loop for want of a Service that isn't Ready, and lets everybody come to rest.
func (b *Bench) fillDrain(ctx context.Context, service string) (end int64, err error) {
	if err := testbed.Each(ctx, drained, func(ctx context.Context, i int) error {
		return b.addPod(ctx, fmt.Sprintf("%s-%d", service, i), service, true)
	}); err != nil {
		return 0, err
	}
	return b.AwaitNoWrites(ctx)
}

// drainBare deletes pods by a loop with the manager's rights that has nothing to decide or report.
func (b *Bench) drainBare(ctx context.Context, clients kubernetes.Interface, service string, into *drainRates) error {
	if _, err := b.fillDrain(ctx, service); err != nil {
		return err
	}
	pods, err := b.dependents(ctx, service)
	if err != nil {
		return err
	}
	before, began := b.Usage(), time.Now()
	if err := testbed.EachOf(ctx, deletionsAtOnce, len(pods), func(ctx context.Context, i int) error { return deleteBare(ctx, clients, &pods[i]) }); err != nil {
		return err
	}
	into.add(time.Since(began), b.Usage().Since(before))
	return nil
}

// drainOurs lets the Service recover. The time ends when the API server has answered the last DELETE.
func (b *Bench) drainOurs(ctx context.Context, round int, into *drainRates) error {
	end, err := b.fillDrain(ctx, drainService(round))
	if err != nil {
		return err
	}
	before, began := b.Usage(), time.Now()
	if err := b.setReady(ctx, drainService(round), true); err != nil {
		return err
	}
	log, err := b.awaitDeletions(ctx, end, drained)
	if err != nil {
		return err
	}
	spent := b.Usage().Since(before)
	var last time.Time
	for _, d := range log.deletions {
		if d.Answered.After(last) {
			last = d.Answered
		}
	}
	into.add(last.Sub(began), spent)
	return nil
}
