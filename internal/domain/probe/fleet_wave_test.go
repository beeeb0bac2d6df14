package probe_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// probed is a target whose runs are played.
type probed struct {
	at     probe.TargetKey
	config *probe.Config
	state  probe.State
	down   bool
	// dead: its load balancer is.
	dead bool
}

// cluster plays the runs of many targets in the order of time, with what each wants done at once.
type cluster struct {
	fleet   *probe.Fleet
	targets []*probed
	now     time.Time
	random  *rand.Rand
	// broken: no external path works, nor one to a witness, if there are any.
	broken, witnesses bool
	allowed           int
	opened            time.Time
	// late counts those that were allowed while it was open though nothing ails them.
	late int
}

func (c *cluster) Len() int { return len(c.targets) }
func (c *cluster) Less(i, j int) bool {
	return c.targets[i].state.NextRun.Before(c.targets[j].state.NextRun)
}
func (c *cluster) Swap(i, j int) { c.targets[i], c.targets[j] = c.targets[j], c.targets[i] }
func (c *cluster) Push(any)      {}
func (c *cluster) Pop() any      { return nil }

// wave has 200 targets of four configs.
func wave(interval func(i int) time.Duration) *cluster {
	c := &cluster{fleet: probe.NewFleet(limit.Builtin()), now: start, random: rand.New(rand.NewPCG(1, 2))}
	for i := range 200 {
		config := &probe.Config{
			UID: types.UID(fmt.Sprint("config-", i%4)), Interval: interval(i), Timeout: 5 * time.Second, Backoff: interval(i),
			Thresholds: probe.Thresholds{Success: 1, Failure: 3}, Jitter: 0.2,
		}
		t := &probed{at: probe.TargetKey{Config: config.UID, Namespace: fmt.Sprint("shoot-", i)}, config: config}
		t.state.NextRun = config.FirstRun(float64(i)/200, start)
		c.fleet.Add(t.at, false)
		c.fleet.SetActive(t.at, true, start)
		c.fleet.ObserveDown(t.at, false)
		c.targets = append(c.targets, t)
	}
	heap.Init(c)
	return c
}

// play lets time pass.
func (c *cluster) play(until time.Time) {
	for t := c.targets[0]; t.state.NextRun.Before(until); t = c.targets[0] {
		c.now = t.state.NextRun
		c.run(t)
		heap.Fix(c, 0)
	}
	c.now = until
}

func (c *cluster) run(t *probed) {
	external := probe.Outcome{Class: probe.OK}
	ended := c.now
	if c.broken || t.dead {
		external, ended = probe.Outcome{Class: probe.Timeout}, c.now.Add(t.config.Timeout)
	}
	t.state = t.state.After(t.config, probe.Run{Started: c.now, Ended: ended, Internal: probe.Outcome{Class: probe.OK}, External: &external, Witnessed: c.witnesses && t.dead && !c.broken, Spread: c.random.Float64()})
	c.fleet.ObserveRun(t.at, &t.state, c.now)
	if _, open := c.fleet.Breaker(); open && c.opened.IsZero() {
		c.opened = c.now
	}
	switch t.state.Direction {
	case probe.Down:
		if !t.down && c.fleet.AcquireScaleDown(t.at, c.now).Allowed {
			t.down = true
			if _, open := c.fleet.Breaker(); open && !t.dead {
				c.late++
			}
			c.allowed++
		}
	case probe.Up:
		if t.down && c.fleet.AcquireScaleUp(t.at, c.now).Allowed {
			t.down = false
			c.fleet.ObserveDown(t.at, false)
		}
	case probe.Hold:
	}
}

// Our own egress dies: every external path at once. Who is probed often turns unhealthy within half a minute, who is probed
// seldom after many.
func TestOurOwnEgressDiesWhileTargetsAreProbedAtDifferentIntervals(t *testing.T) {
	for name, interval := range map[string]func(i int) time.Duration{
		"four intervals": func(i int) time.Duration {
			return []time.Duration{10 * time.Second, 45 * time.Second, 2 * time.Minute, 4 * time.Minute}[i%4]
		},
		"few are probed often": func(i int) time.Duration {
			if i < 18 {
				return 10 * time.Second
			}
			return 4 * time.Minute
		},
	} {
		c := wave(interval)
		c.play(start.Add(30 * time.Minute))
		c.broken = true
		c.play(start.Add(90 * time.Minute))
		if c.opened.IsZero() || c.late > 0 || c.allowed > 20 {
			t.Fatalf("%s: %d of 200 targets are scaled down, %d of them after the breaker opened at %s; want at most 20, and none then", name, c.allowed, c.late, c.opened)
		}
		c.broken = false
		c.play(start.Add(3 * time.Hour))
		if _, down := c.fleet.Counts(); down != 0 {
			t.Errorf("%s: %d are still scaled down after the paths are back", name, down)
		}
		if b, open := c.fleet.Breaker(); open {
			t.Errorf("%s: the breaker %+v is open long after the paths are back", name, b)
		}
	}
}

// Clusters that died one by one, and that nobody removed, are no wave.
func TestWhatDiedLongAgoDoesntMakeAWave(t *testing.T) {
	c := wave(func(int) time.Duration { return 10 * time.Second })
	for hour := range 48 {
		dead := c.targets[(hour*7)%200]
		c.play(start.Add(time.Duration(hour+1) * time.Hour))
		for range 4 {
			c.now = c.now.Add(10 * time.Second)
			c.broken = true
			c.run(dead)
			c.broken = false
		}
		dead.state.NextRun = start.Add(1000 * time.Hour)
		heap.Init(c)
	}
	if !c.opened.IsZero() {
		t.Errorf("the breaker opened at %s", c.opened)
	}
}
