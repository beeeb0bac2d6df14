package policy

import (
	"maps"
	"slices"
	"strings"
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

// ErrorTracker remembers for which targets of which policies the last write failed. It is safe for concurrent use.
type ErrorTracker struct {
	// OnChange is called for each policy whose writes began or ceased to fail.
	OnChange func(types.NamespacedName)

	mu      sync.Mutex
	failing map[types.UID]*policyFailures // needs mu
}

type policyFailures struct {
	policy  types.NamespacedName
	targets map[string]error
	// partial: a write to some other target succeeded meanwhile, so it isn't the policy's own fault.
	partial bool
}

// WriteErrors are the writes for one policy that failed; nil when none did.
type WriteErrors struct {
	// Targets is how many there are, Sample one of them and Err its error.
	Targets int
	Sample  string
	Err     error
	// Partial: writes to other targets succeed.
	Partial bool
}

// Forbidden says that nothing at all may be written: a human must give the permission.
func (t *WriteErrors) Forbidden() bool { return t != nil && !t.Partial && apierrors.IsForbidden(t.Err) }

// Retrying says that nothing was written lately.
func (t *WriteErrors) Retrying() bool { return t != nil && !t.Partial && !apierrors.IsForbidden(t.Err) }

// Attempts are the outcomes of several writes to one target.
type Attempts struct {
	// Written are policies for which one succeeded, Failed those for which one didn't. A policy may be both.
	Written []Ref
	Failed  map[Ref]error
	// Complete: all there was to do was tried, so that for no other policy a write to the target fails.
	Complete bool
}

// RecordFailure records that a write to a target failed, for these policies. That someone else wrote first is no failure:
// it isn't recorded.
func (t *ErrorTracker) RecordFailure(target string, err error, policies ...Ref) {
	failed := map[Ref]error{}
	for _, policy := range policies {
		failed[policy] = err
	}
	t.RecordAttempts(target, Attempts{Failed: failed})
}

// RecordSuccess records that a write to a target succeeded, for these policies, and that it was all there was to do.
func (t *ErrorTracker) RecordSuccess(target string, policies ...Ref) {
	t.RecordAttempts(target, Attempts{Written: policies, Complete: true})
}

// Clear records that there is nothing to be done for a target, or that it is gone.
func (t *ErrorTracker) Clear(target string) { t.RecordAttempts(target, Attempts{Complete: true}) }

// RecordAttempts records several writes to a target at once: one that failed isn't forgotten for another that succeeded.
func (t *ErrorTracker) RecordAttempts(target string, attempts Attempts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for policy, err := range attempts.Failed {
		t.addFailure(target, err, policy)
	}
	for _, policy := range attempts.Written {
		if of := t.failing[policy.UID]; of != nil && !of.partial {
			of.partial = true
			t.notify(of)
		}
	}
	for uid, of := range t.failing {
		policy := Ref{UID: uid, NamespacedName: of.policy}
		_, failed := attempts.Failed[policy]
		if !failed && (attempts.Complete || slices.Contains(attempts.Written, policy)) {
			t.clearFailure(target, uid)
		}
	}
}

// addFailure needs t.mu.
func (t *ErrorTracker) addFailure(target string, err error, policy Ref) {
	of := t.failing[policy.UID]
	if of == nil {
		of = &policyFailures{policy: policy.NamespacedName, targets: map[string]error{}}
		if t.failing == nil {
			t.failing = map[types.UID]*policyFailures{}
		}
		t.failing[policy.UID] = of
		t.notify(of)
	}
	of.targets[target] = err
}

// clearFailure needs t.mu.
func (t *ErrorTracker) clearFailure(target string, uid types.UID) {
	of := t.failing[uid]
	if _, ok := of.targets[target]; !ok {
		return
	}
	if delete(of.targets, target); len(of.targets) == 0 {
		delete(t.failing, uid)
		t.notify(of)
	}
}

func (t *ErrorTracker) notify(of *policyFailures) {
	if t.OnChange != nil {
		t.OnChange(of.policy)
	}
}

// Get returns a policy's failed writes, nil when there are none.
func (t *ErrorTracker) Get(policy types.UID) *WriteErrors {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.failing[policy]
	if of == nil {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(of.targets)))
	return &WriteErrors{Targets: len(of.targets), Sample: first, Err: of.targets[first], Partial: of.partial}
}

// Forget drops a policy that is gone.
func (t *ErrorTracker) Forget(policy types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failing, policy)
}

const (
	// Delay is the least time between two reconciliations of a policy's status, which so is written at most once a second.
	Delay = time.Second
	// All policies of a kind together are reconciled less often than that when many change at once: in a storm over 50
	// policies, 50 counts and 50 status writes a second would take from the acts what they need of API server and processor.
	statusesPerSecond = 10
	statusesBurst     = 20
)

// StatusThrottle spaces out the status reconciliations of a kind. A policy that must wait has a slot: some that change without end, or can't
// be written and come back at once, don't keep another one from its slot. It is safe for concurrent use.
type StatusThrottle struct {
	mu       sync.Mutex
	limiter  *rate.Limiter                        // needs mu
	policies map[types.NamespacedName]statusTimes // needs mu
}

// statusTimes are when a policy's status was last reconciled, and when it may be again; the latter is zero unless the policy waits for a slot.
type statusTimes struct{ last, slot time.Time }

// Wait is how long a policy must wait for its slot; 0 takes the slot. What is urgent, because acting waits for it, never
// waits.
func (p *StatusThrottle) Wait(policy types.NamespacedName, now time.Time, urgent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limiter == nil {
		p.limiter, p.policies = rate.NewLimiter(statusesPerSecond, statusesBurst), map[types.NamespacedName]statusTimes{}
	}
	if !urgent {
		times := p.policies[policy]
		if wait := times.last.Add(Delay).Sub(now); wait > 0 {
			return wait
		}
		if times.slot.IsZero() {
			times.slot = now.Add(p.limiter.ReserveN(now, 1).DelayFrom(now))
		}
		if wait := times.slot.Sub(now); wait > 0 {
			p.policies[policy] = times
			return wait
		}
	}
	p.policies[policy] = statusTimes{last: now}
	return 0
}

// Forget drops a policy that is gone.
func (p *StatusThrottle) Forget(policy types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.policies, policy)
}

// Sentence puts clauses together. What others' errors end with is no second full stop.
func Sentence(clauses ...string) string {
	for i := range clauses {
		clauses[i] = strings.TrimSuffix(clauses[i], ".")
	}
	return strings.Join(clauses, "; ") + "."
}
