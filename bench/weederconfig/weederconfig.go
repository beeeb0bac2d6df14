// Package weederconfig measures deletions of crash-looping pods after their Service recovered, among many pods: how long after a bare
// watch showed that, and how many a second, against bare loops that decide nothing.
//
// Begin at Weeder. Nothing plays the pods, and nothing replaces what is deleted: their owners exist by name only, and no garbage
// collector runs.
package weederconfig

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
)

const (
	services = 100
	// loopsPerService pods of each Service's dependents crash-loop before it recovers.
	loopsPerService = 5
	// servicesPerConfig is more than most will have: the more, the longer takes each write of a config's status.
	servicesPerConfig = 10
	// idleFor is for how long nothing happens.
	idleFor = 20 * time.Second
	// recoveriesPerSecond leaves the API server time for what follows from one.
	recoveriesPerSecond = 4
)

// Bench measures WeederConfigs.
type Bench struct {
	*testbed.Bed
	Pods int
}

// Weeder measures what pods take of the manager's heap, recoveries of many Services, and one that drains many pods.
func (b *Bench) Weeder(ctx context.Context) error {
	b.Say("weeder: %d pods, %d Services", b.Pods, services)
	empty, err := b.FreshHeap(ctx)
	if err != nil {
		return err
	}
	if err := b.addConfigs(ctx); err != nil {
		return err
	}
	if err := b.addPods(ctx); err != nil {
		return err
	}
	full, err := b.FreshHeap(ctx) // of a full store, not of filling it
	if err != nil {
		return err
	}
	perPod := (full - empty) / max(1, b.Pods)
	b.Report.Checked(fmt.Sprintf("memory a pod, on the manager's heap after a collection, with %d pods", b.Pods), report.KiB(perPod), "≤ 2 KiB", perPod <= 2<<10)
	if err := b.recoveries(ctx); err != nil {
		return err
	}
	return b.drain(ctx)
}

// recoveries turns one Service after the other Ready and measures how long after a bare watch has shown it each DELETE
// reaches the API server: the manager's, and then those of a bare loop.
func (b *Bench) recoveries(ctx context.Context) error {
	b.Say("weeder: %d recoveries, with %d crash-looping pods each", services, loopsPerService)
	ours, err := b.recoverAll(ctx, "pod", nil)
	if err != nil {
		return err
	}
	if err := b.idle(ctx); err != nil {
		return err
	}
	var bare *latencies
	if err := b.WithoutManager(ctx, func() error {
		bare, err = b.recoverBare(ctx, ours.log)
		return err
	}); err != nil {
		return err
	}
	b.reportRecoveries(ours, bare)
	return nil
}

// recoverAll turns every Service Ready. Then acts for one which a watch showed; nil leaves that to the manager.
func (b *Bench) recoverAll(ctx context.Context, podPrefix string, then func(service string)) (*latencies, error) {
	readyAt, stop, err := b.watchReady(ctx, then)
	if err != nil {
		return nil, err
	}
	defer stop()
	end, err := b.AwaitNoWrites(ctx)
	if err != nil {
		return nil, err
	}
	if err := testbed.Paced(ctx, services, recoveriesPerSecond, func(ctx context.Context, i int) error { return b.setReady(ctx, ServiceName(i), true) }); err != nil {
		return nil, err
	}
	log, err := b.awaitDeletions(ctx, end, services*loopsPerService)
	if err != nil {
		return nil, err
	}
	return newLatencies(log, podPrefix, readyAt)
}

// latencies are how long DELETEs were on their way, how much of that remains without the write of the status before them, and how
// long the API server took for both.
type latencies struct {
	log                                            *deletionLog
	delays, withoutStatus, statusWrites, deletions []time.Duration
}

func newLatencies(log *deletionLog, podPrefix string, readyAt func(service string) time.Time) (*latencies, error) {
	l := &latencies{log: log}
	for name, d := range log.deletions {
		i, err := strconv.Atoi(strings.TrimPrefix(name, podPrefix+"-"))
		if err != nil {
			return nil, fmt.Errorf("pod %s was deleted: %w", name, err)
		}
		service := i % services
		delay := max(0, d.Received.Sub(readyAt(ServiceName(service))))
		l.delays, l.deletions = append(l.delays, delay), append(l.deletions, d.Took())
		l.withoutStatus = append(l.withoutStatus, delay-log.statusBefore(configOf(service), d.Received).Took())
	}
	for _, w := range log.statusWrites {
		l.statusWrites = append(l.statusWrites, w.Took())
	}
	return l, nil
}

func (b *Bench) reportRecoveries(ours, bare *latencies) {
	p99 := report.Quantile(ours.delays, .99)
	b.Report.Checked(fmt.Sprintf("Service Ready on a bare watch → DELETE received, %d pods, p50 and p99", b.Pods), report.P50P99(ours.delays), "p99 < 50 ms", p99 < 50*time.Millisecond)
	b.Report.Value("the same of a bare loop that watches, writes the same statuses and deletes", report.P50P99(bare.delays))
	b.Report.Value("ours without the write of the status that it waits for", report.P50P99(ours.withoutStatus))
	b.Report.Value("for comparison, how long the API server took for these writes; the bare loop's", report.P50P99(ours.statusWrites)+"; "+report.P50P99(bare.statusWrites))
	b.Report.Value("and for these DELETEs; the bare loop's", report.P50P99(ours.deletions)+"; "+report.P50P99(bare.deletions))
}

// idle counts what the manager writes while windows are open and nothing happens. That it reads nothing either is what
// e2e/weederconfig shows: reads aren't in the audit log.
func (b *Bench) idle(ctx context.Context) error {
	end, err := b.AwaitNoWrites(ctx)
	if err != nil {
		return err
	}
	if err := testbed.Pause(ctx, idleFor); err != nil {
		return err
	}
	writes, err := b.Writes(end)
	if err != nil {
		return err
	}
	b.Report.Checked(fmt.Sprintf("%d open windows and no news for %s: the manager's writes", services, idleFor), strconv.Itoa(len(writes)), "0", len(writes) == 0)
	return nil
}
