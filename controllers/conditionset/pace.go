package conditionset

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// statusDelay lies at least between two looks at a set, so that its status is written at most once a second.
	statusDelay = time.Second
	// All sets together look less often than that when many change at once: in a storm over 50 sets, 50 counts over all
	// nodes and 50 status writes a second would take from the taints what they need of API server and processor.
	statusesPerSecond = 10
	statusesBurst     = 20
)

// pace spaces out the looks at sets.
type pace struct {
	mu   sync.Mutex
	all  *rate.Limiter
	last map[types.UID]time.Time // needs mu
}

// wait is how long a set must wait for its turn; 0 takes the turn. What is urgent, because acting waits for it, never waits.
func (p *pace) wait(set types.UID, now time.Time, urgent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last, p.all = map[types.UID]time.Time{}, rate.NewLimiter(statusesPerSecond, statusesBurst)
	}
	if !urgent {
		if wait := p.last[set].Add(statusDelay).Sub(now); wait > 0 {
			return wait
		}
		turn := p.all.ReserveN(now, 1)
		if wait := turn.DelayFrom(now); wait > 0 {
			turn.CancelAt(now)
			return wait
		}
	}
	p.last[set] = now
	return 0
}

func (p *pace) forget(set types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, set)
}
