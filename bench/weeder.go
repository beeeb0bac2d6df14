package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// weedNamespace is Autohealer's own: elsewhere accounts would be asked, which isn't what is measured.
	weedNamespace = harness.Namespace
	weedServices  = 100
	// loopsPerService pods of each Service's dependents crash-loop before it recovers.
	loopsPerService = 5
	// servicesPerConfig is more than most will have: the more, the longer takes each write of a config's status.
	servicesPerConfig = 10
	// weedIdles is for how long nothing happens.
	weedIdles = 20 * time.Second
	// recoveriesPerSecond leaves the API server time for what follows from one.
	recoveriesPerSecond = 4
)

// weeder measures deletions after recoveries among many pods. Nothing plays the pods, and nothing replaces what is deleted:
// their owners exist by name only, and no garbage collector runs.
func (b *bench) weeder(ctx context.Context) error {
	b.say("weeder: %d pods, %d Services", b.size.pods, weedServices)
	if b.pprof == "" {
		b.pprof = loopback()
	}
	if err := b.restarted(ctx); err != nil {
		return err
	}
	empty, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	if err := b.addConfigs(ctx); err != nil {
		return err
	}
	if err := b.addPods(ctx); err != nil {
		return err
	}
	if err := b.restarted(ctx); err != nil { // the memory of a full store, not of filling it
		return err
	}
	full, err := b.liveMemory(ctx)
	if err != nil {
		return err
	}
	perPod := (full - empty) / max(1, b.size.pods)
	b.report.absolute(row{what: fmt.Sprintf("memory a pod, on the manager's heap after a collection, with %d pods", b.size.pods), ours: fmt.Sprintf("%.1f KiB", float64(perPod)/1024), goal: "≤ 2 KiB", reached: perPod <= 2<<10})
	if err := b.recoveries(ctx); err != nil {
		return err
	}
	return b.drain(ctx)
}

// recoveries turns one Service after the other Ready and measures how long after a bare watch has told of it each DELETE
// reaches the API server.
func (b *bench) recoveries(ctx context.Context) error {
	b.say("weeder: %d recoveries, with %d crash-looping pods each", weedServices, loopsPerService)
	told, stop, err := b.watchReady(ctx)
	if err != nil {
		return err
	}
	defer stop()
	end, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	if err := paced(ctx, weedServices, recoveriesPerSecond, func(ctx context.Context, i int) error { return b.recover(ctx, serviceName(i)) }); err != nil {
		return err
	}
	log, err := b.awaitDeletions(ctx, end, weedServices*loopsPerService)
	if err != nil {
		return err
	}
	if err := b.reportRecoveries(log, told); err != nil {
		return err
	}
	return b.weedIdle(ctx)
}

// reportRecoveries tells how long each DELETE was on its way, and how much of that was the write of the status before it,
// without which it isn't sent.
func (b *bench) reportRecoveries(log *deletionLog, told func(service string) time.Time) error {
	var delays, besides, writes, deletes []time.Duration
	for name, d := range log.deletions {
		i, err := strconv.Atoi(strings.TrimPrefix(name, "pod-"))
		if err != nil {
			return fmt.Errorf("pod %s was deleted: %w", name, err)
		}
		service := i % weedServices
		delay := max(0, d.received.Sub(told(serviceName(service))))
		delays, deletes = append(delays, delay), append(deletes, d.took())
		besides = append(besides, delay-log.noteBefore(configOf(service), d.received).took())
	}
	for _, n := range log.notes {
		writes = append(writes, n.took())
	}
	both := func(of []time.Duration) string {
		return milliseconds(quantile(of, .5)) + ", " + milliseconds(quantile(of, .99))
	}
	p99 := quantile(delays, .99)
	b.report.absolute(row{what: fmt.Sprintf("Service Ready on a bare watch → DELETE received, %d pods, p50 and p99", b.size.pods), ours: both(delays), goal: "p99 < 50 ms", reached: p99 < 50*time.Millisecond})
	b.report.absolute(row{what: "the same without the write of the status that it waits for", ours: both(besides)})
	b.report.absolute(row{what: "for comparison, how long the API server took for these writes", ours: both(writes)})
	b.report.absolute(row{what: "and for these DELETEs", ours: both(deletes)})
	return nil
}

// weedIdle counts what the manager writes while windows are open and nothing happens. That it reads nothing either is what
// e2e/weederconfig shows: reads aren't in the audit log.
func (b *bench) weedIdle(ctx context.Context) error {
	end, err := b.quiet(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, weedIdles); err != nil {
		return err
	}
	writes, err := b.managerWrites(end)
	if err != nil {
		return err
	}
	b.report.absolute(row{what: fmt.Sprintf("%d open windows and no news for %s: the manager's writes", weedServices, weedIdles), ours: strconv.Itoa(len(writes)), goal: "0", reached: len(writes) == 0})
	return nil
}
