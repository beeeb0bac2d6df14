package main

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/probing"
)

// counting is the handler of a Prober: it counts, and lets targets run at their interval.
type counting struct {
	interval           time.Duration
	mu                 sync.Mutex
	requests, failures int
}

func (c *counting) Observe(_ probing.Key, run probe.Run) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests += 2
	if run.External == nil || run.External.Class != probe.OK {
		c.failures++
	}
	return run.Started.Add(c.interval)
}

func (c *counting) counts() (requests, failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests, c.failures
}

func loadByProber(ctx context.Context, load probeLoad) (any, error) {
	if err := probing.RegisterMetrics(); err != nil {
		return nil, err
	}
	before := memoryNow()
	handler := &counting{interval: load.Interval}
	prober := (&probing.Prober{Handler: handler, Policy: kubeconfig.Policy{AllowLoopback: true}, FreshEvery: load.FreshEvery}).Init()
	for i := range load.Targets {
		internal, err := load.credentials(i)
		if err != nil {
			return nil, err
		}
		external, err := load.credentials(i + 1) // another server: two ways to one would be refused
		if err != nil {
			return nil, err
		}
		key := probing.Key{Config: types.NamespacedName{Namespace: "bench", Name: strconv.Itoa(i)}, Namespace: "bench"}
		first := time.Now().Add(time.Second + load.Interval*time.Duration(i)/time.Duration(load.Targets))
		if err := prober.Set(key, probing.Target{Internal: internal, External: external, Timeout: load.Interval / 2}, first); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- prober.Start(ctx) }()
	cost, err := load.measure(ctx, handler.counts, lateRuns)
	if err == nil {
		after := memoryNow()
		cost.Heap = (after.HeapAlloc - before.HeapAlloc) / uint64(load.Targets)
		cost.Stacks = (after.StackInuse - before.StackInuse) / uint64(load.Targets)
	}
	cancel()
	return cost, errors.Join(err, <-ended)
}

// lateRuns reads the Prober's own metric.
func lateRuns() (late, all uint64) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, 0
	}
	for _, family := range families {
		if family.GetName() != "autohealer_probe_lateness_seconds" {
			continue
		}
		histogram := family.GetMetric()[0].GetHistogram()
		all = histogram.GetSampleCount()
		for _, bucket := range histogram.GetBucket() {
			if bucket.GetUpperBound() == 1 {
				late = all - bucket.GetCumulativeCount()
			}
		}
	}
	return late, all
}

func memoryNow() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&m)
	return m
}
