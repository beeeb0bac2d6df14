package policy

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names a stored policy.
type Ref struct {
	UID types.UID
	types.NamespacedName
}

// Troubles remembers for which targets of which policies the last write failed. It is safe for concurrent use.
type Troubles struct {
	// Hit is told of each policy whose trouble began or ended.
	Hit func(types.NamespacedName)

	mu sync.Mutex
	of map[types.UID]*troubled // needs mu
}

type troubled struct {
	policy  types.NamespacedName
	targets map[string]error
	// partly: for some other target a write came about meanwhile, so it isn't the policy's own trouble.
	partly bool
}

// Trouble is one policy's trouble; nil is none.
type Trouble struct {
	// Targets is how many there are, Sample one of them and Err its error.
	Targets int
	Sample  string
	Err     error
	// Partly: for other targets writes come about.
	Partly bool
}

// Forbidden says that nothing at all may be written: a human must give the permission.
func (t *Trouble) Forbidden() bool { return t != nil && !t.Partly && apierrors.IsForbidden(t.Err) }

// Retrying says that nothing was written lately.
func (t *Trouble) Retrying() bool { return t != nil && !t.Partly && !apierrors.IsForbidden(t.Err) }

// Tries is what became of several writes to one target.
type Tries struct {
	// Written are policies for which one came about, Failed those for which one didn't. A policy may be both.
	Written []Ref
	Failed  map[Ref]error
	// All there was to do was tried, so that other policies have no trouble with the target.
	All bool
}

// Failed takes in that a write to a target failed, for these policies. That someone else wrote first is no failure;
// don't tell of it.
func (t *Troubles) Failed(target string, err error, policies ...Ref) {
	failed := map[Ref]error{}
	for _, policy := range policies {
		failed[policy] = err
	}
	t.Tried(target, Tries{Failed: failed})
}

// Written takes in that a write to a target came about, for these policies, and that it was all there was to do.
func (t *Troubles) Written(target string, policies ...Ref) {
	t.Tried(target, Tries{Written: policies, All: true})
}

// Settled takes in that there is nothing to be done for a target, or that it is gone.
func (t *Troubles) Settled(target string) { t.Tried(target, Tries{All: true}) }

// Tried takes in several writes to a target at once: one that failed isn't forgotten for another that came about.
func (t *Troubles) Tried(target string, tries Tries) {
	t.mu.Lock()
	defer t.mu.Unlock()
	still := map[types.UID]bool{}
	for policy, err := range tries.Failed {
		still[policy.UID] = true
		t.fail(target, err, policy)
	}
	ended := map[types.UID]bool{}
	for _, policy := range tries.Written {
		ended[policy.UID] = true
		if of := t.of[policy.UID]; of != nil && !of.partly {
			of.partly = true
			t.tell(of)
		}
	}
	for uid := range t.of {
		if !still[uid] && (tries.All || ended[uid]) {
			t.end(target, uid)
		}
	}
}

// fail needs t.mu.
func (t *Troubles) fail(target string, err error, policy Ref) {
	of := t.of[policy.UID]
	if of == nil {
		of = &troubled{policy: policy.NamespacedName, targets: map[string]error{}}
		if t.of == nil {
			t.of = map[types.UID]*troubled{}
		}
		t.of[policy.UID] = of
		t.tell(of)
	}
	of.targets[target] = err
}

// end needs t.mu.
func (t *Troubles) end(target string, uid types.UID) {
	of := t.of[uid]
	if _, ok := of.targets[target]; !ok {
		return
	}
	if delete(of.targets, target); len(of.targets) == 0 {
		delete(t.of, uid)
		t.tell(of)
	}
}

func (t *Troubles) tell(of *troubled) {
	if t.Hit != nil {
		t.Hit(of.policy)
	}
}

// Get gives a policy's trouble, nil when there is none.
func (t *Troubles) Get(policy types.UID) *Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.of[policy]
	if of == nil {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(of.targets)))
	return &Trouble{Targets: len(of.targets), Sample: first, Err: of.targets[first], Partly: of.partly}
}

// Forget drops a policy that is gone.
func (t *Troubles) Forget(policy types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, policy)
}

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
