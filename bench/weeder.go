package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
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
		b.pprof = cluster.FreeAddress()
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
// reaches the API server: the manager's, and then those of a bare loop.
func (b *bench) recoveries(ctx context.Context) error {
	b.say("weeder: %d recoveries, with %d crash-looping pods each", weedServices, loopsPerService)
	ours, err := b.recoverAll(ctx, "pod", nil)
	if err != nil {
		return err
	}
	if err := b.weedIdle(ctx); err != nil {
		return err
	}
	var bare *trips
	if err := b.withoutManager(ctx, func() error {
		bare, err = b.recoverBare(ctx, ours.log)
		return err
	}); err != nil {
		return err
	}
	b.reportRecoveries(ours, bare)
	return nil
}

// recoverAll turns every Service Ready. Then acts for one of which a watch told; nil leaves that to the manager.
func (b *bench) recoverAll(ctx context.Context, prefix string, then func(service string)) (*trips, error) {
	told, stop, err := b.watchReady(ctx, then)
	if err != nil {
		return nil, err
	}
	defer stop()
	end, err := b.quiet(ctx)
	if err != nil {
		return nil, err
	}
	if err := paced(ctx, weedServices, recoveriesPerSecond, func(ctx context.Context, i int) error { return b.turn(ctx, serviceName(i), true) }); err != nil {
		return nil, err
	}
	log, err := b.awaitDeletions(ctx, end, weedServices*loopsPerService)
	if err != nil {
		return nil, err
	}
	return newTrips(log, prefix, told)
}

// trips are how long DELETEs were on their way, how much of that remains without the write of the status before them, and how
// long the API server took for both.
type trips struct {
	log                             *deletionLog
	delays, besides, notes, deletes []time.Duration
}

func newTrips(log *deletionLog, prefix string, told func(service string) time.Time) (*trips, error) {
	t := &trips{log: log}
	for name, d := range log.deletions {
		i, err := strconv.Atoi(strings.TrimPrefix(name, prefix+"-"))
		if err != nil {
			return nil, fmt.Errorf("pod %s was deleted: %w", name, err)
		}
		service := i % weedServices
		delay := max(0, d.received.Sub(told(serviceName(service))))
		t.delays, t.deletes = append(t.delays, delay), append(t.deletes, d.took())
		t.besides = append(t.besides, delay-log.noteBefore(configOf(service), d.received).took())
	}
	for _, n := range log.notes {
		t.notes = append(t.notes, n.took())
	}
	return t, nil
}

func (b *bench) reportRecoveries(ours, bare *trips) {
	both := func(of []time.Duration) string {
		return milliseconds(quantile(of, .5)) + ", " + milliseconds(quantile(of, .99))
	}
	p99 := quantile(ours.delays, .99)
	b.report.absolute(row{what: fmt.Sprintf("Service Ready on a bare watch → DELETE received, %d pods, p50 and p99", b.size.pods), ours: both(ours.delays), goal: "p99 < 50 ms", reached: p99 < 50*time.Millisecond})
	b.report.absolute(row{what: "the same of a bare loop that watches, writes the same statuses and deletes", ours: both(bare.delays)})
	b.report.absolute(row{what: "ours without the write of the status that it waits for", ours: both(ours.besides)})
	b.report.absolute(row{what: "for comparison, how long the API server took for these writes; the bare loop's", ours: both(ours.notes) + "; " + both(bare.notes)})
	b.report.absolute(row{what: "and for these DELETEs; the bare loop's", ours: both(ours.deletes) + "; " + both(bare.deletes)})
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
