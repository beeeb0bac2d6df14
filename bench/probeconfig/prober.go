package probeconfig

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/probing"
)

// counting handles the runs of a Prober: it counts them, and has targets run at their interval.
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

const token = "a-token-of-a-service-account-has-about-a-thousand-bytes"

// probeByProber has a Prober probe all targets.
func probeByProber(ctx context.Context, load load) (any, error) {
	if err := probing.RegisterMetrics(); err != nil {
		return nil, err
	}
	before := testbed.OwnMemory()
	handler := &counting{interval: load.Interval}
	prober := (&probing.Prober{Handler: handler, Policy: kubeconfig.Policy{AllowLoopback: true}, RedialEvery: load.FreshEvery}).Init()
	for i := range load.Targets {
		var sides [2][]byte
		for side := range sides { // of two servers: two ways to one would be refused
			config, err := load.kubeconfig(i+side, token)
			if err != nil {
				return nil, err
			}
			sides[side] = config
		}
		key := probing.Key{Namespace: "bench", Name: "bench/" + strconv.Itoa(i)}
		first := time.Now().Add(time.Second + load.Interval*time.Duration(i)/time.Duration(load.Targets))
		if err := prober.Set(key, probing.Target{Internal: sides[0], External: sides[1], Timeout: load.Interval / 2}, first); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- prober.Start(ctx) }()
	cost, err := load.measure(ctx, handler.counts, lateRuns)
	if err == nil {
		after := testbed.OwnMemory()
		cost.Heap = int(after.HeapAlloc-before.HeapAlloc) / load.Targets
		cost.Stacks = int(after.StackInuse-before.StackInuse) / load.Targets
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
