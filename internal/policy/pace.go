package policy

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Delay lies at least between two looks at a policy, so that its status is written at most once a second.
	Delay = time.Second
	// All policies of a kind together are looked at less often than that when many change at once: in a storm over 50
	// policies, 50 counts and 50 status writes a second would take from the acts what they need of API server and processor.
	looksPerSecond = 10
	looksBurst     = 20
)

// Pace spaces out the looks at a kind's policies. Who must wait has a place in the line: some that change without end, or can't
// be written and come back at once, don't keep another one from its turn. It is safe for concurrent use.
type Pace struct {
	mu    sync.Mutex
	all   *rate.Limiter
	last  map[types.NamespacedName]time.Time // needs mu, as turns
	turns map[types.NamespacedName]time.Time // when it is the turn of who waits
}

// Wait is how long a policy must wait for its turn; 0 takes the turn. What is urgent, because acting waits for it, never
// waits.
func (p *Pace) Wait(policy types.NamespacedName, now time.Time, urgent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.all, p.last, p.turns = rate.NewLimiter(looksPerSecond, looksBurst), map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}
	}
	if !urgent {
		if wait := p.last[policy].Add(Delay).Sub(now); wait > 0 {
			return wait
		}
		turn, waits := p.turns[policy]
		if !waits {
			turn = now.Add(p.all.ReserveN(now, 1).DelayFrom(now))
		}
		if wait := turn.Sub(now); wait > 0 {
			p.turns[policy] = turn
			return wait
		}
	}
	p.last[policy] = now
	delete(p.turns, policy)
	return 0
}

// Forget drops a policy that is gone.
func (p *Pace) Forget(policy types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, policy)
	delete(p.turns, policy)
}
