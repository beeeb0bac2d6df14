package probe

import (
	"time"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// Run is one run of the probes of a target.
type Run struct {
	Started, Ended time.Time
	Internal       Outcome
	// External is nil when the internal run wasn't successful: then it isn't done.
	External *Outcome
	// Witnessed: the external run failed and witnesses answered at that time, so that our own way out isn't what failed.
	Witnessed bool
	// Leases are all of the cluster's, nil when they weren't looked at: after an external run that wasn't successful, or
	// when they couldn't be listed, for which ListError is the reason. A list that is empty isn't nil.
	Leases    []NodeLease
	ListError Outcome
	// ServerTime is the API server's clock at Ended, which leases are judged by.
	ServerTime time.Time
	// Spread, by chance from 0 to 1, is how much of the config's jitter the pause after the run gets.
	Spread float64
}

// Succeeded says whether a run goes on to the next probe: only after a success of its own.
func Succeeded(o Outcome) bool { return o.Result() == Success }

func (r Run) outcomes() []Outcome {
	if r.External == nil {
		return []Outcome{r.Internal}
	}
	return []Outcome{r.Internal, *r.External}
}

// Direction is where the dependents are to be scaled.
type Direction int

const (
	// Hold: nothing is scaled, a flow that has begun included.
	Hold Direction = iota
	// Down: the nodes can't reach their API server.
	Down
	// Up: they can, or nothing may be scaled down any more. What we scaled down gets its replicas back.
	Up
)

// String names the direction as metrics and logs do.
func (d Direction) String() string { return [...]string{"hold", "down", "up"}[d] }

// State is what a target's runs add up to. The zero value is a target that was never probed.
type State struct {
	Internal, External, Leases Counts
	// LastLeases is what leases said last.
	LastLeases LeaseResult
	// ListFailures counts the runs in a row whose leases couldn't be listed, up to the threshold of failures; LastListError is why
	// not.
	ListFailures  int
	LastListError Outcome
	// LeasesCountUntil is until when what was seen last of the leases speaks against a success, whether they can be listed or not;
	// zero while they never could.
	LeasesCountUntil time.Time
	// Direction follows from the latest run alone, with the counts; it was decided At and is valid until ValidUntil. Afterwards
	// it is stale, and starts nothing.
	Direction      Direction
	At, ValidUntil time.Time
	// UnhealthySince is when the outer side turned unhealthy, InternalUnhealthySince when the inner one did, and HealthySince when
	// both turned healthy; zero while they aren't.
	UnhealthySince, InternalUnhealthySince, HealthySince time.Time
	// NextRun is when to probe again.
	NextRun time.Time
	// Vouched: the external probe is unhealthy, and each of the failures that make it so was witnessed. Recovered: both sides are healthy.
	// Both are of the present: neither holds once a probe has had no result that counts for long.
	Vouched, Recovered bool
	// witnessed counts the failures of the external probe in a row that were, up to the latest.
	witnessed int

	lateLeases LeaseTracker
	// unansweredFor is for how long the external probe hasn't succeeded since leases were fine.
	unansweredFor time.Duration
}

// After gives the state after a run.
func (s State) After(c *Config, r Run) State {
	now := r.Ended
	s.passTime(r)
	s.Internal = s.Internal.After(r.Internal, c.Thresholds, now)
	if s.Internal.Unhealthy(c.Thresholds) { // the API server itself is down: what its outer side counted says nothing
		s.External, s.Leases = s.External.reset(), s.Leases.reset()
		s.lateLeases = nil // nobody could renew a lease
	}
	outer := Unknown
	if Succeeded(r.Internal) && r.External != nil {
		external := s.External.Result(*r.External, now)
		s.External = s.External.After(*r.External, c.Thresholds, now)
		s.countWitnessed(r, external)
		outer = s.evaluateLeases(c, r, external)
	}
	s.recordSince(c, now)
	present := s.ExternalUndetermined(c).IsZero()
	s.Vouched = present && s.External.Unhealthy(c.Thresholds) && s.witnessed >= c.Thresholds.Failure
	s.Recovered = present && !s.HealthySince.IsZero()
	s.NextRun = c.next(&s, r)
	s.Direction = s.decide(c, outer, now)
	// One more run, with its time-outs and the witnesses', may come late before the decision is stale.
	s.ValidUntil = s.NextRun.Add(c.Interval + 2*c.Timeout + WitnessTimeout)
	return s
}

// passTime lets the time until the run pass. While the external probe doesn't succeed, nodes can't be expected to, and so the time that
// leases are trusted for stands still.
func (s *State) passTime(r Run) {
	before := s.At
	s.At = r.Ended
	if r.External != nil && r.External.Result() == Success || before.IsZero() {
		return
	}
	s.unansweredFor += r.Ended.Sub(before)
	if !s.LeasesCountUntil.IsZero() {
		s.LeasesCountUntil = s.LeasesCountUntil.Add(r.Ended.Sub(before))
	}
}

// WitnessTimeout is how long a run waits for witnesses at most.
const WitnessTimeout = 5 * time.Second

// countWitnessed counts failures of the external probe in a row that were witnessed. One that wasn't breaks the row: our way out may have been what
// failed.
func (s *State) countWitnessed(r Run, external Result) {
	switch {
	case external == Failure && r.Witnessed:
		s.witnessed = min(s.witnessed+1, s.External.Errors) // no more than there are since the row began anew
	case external == Failure, external == Success:
		s.witnessed = 0
	}
}

// evaluateLeases gives the result of the outer side: that of the external probe, or of the leases after one that succeeded.
func (s *State) evaluateLeases(c *Config, r Run, external Result) Result {
	if c.Leases == nil { // nor do those count that were looked at before
		s.Leases, s.ListFailures, s.LastListError, s.LeasesCountUntil, s.unansweredFor, s.lateLeases = Counts{}, 0, Outcome{}, time.Time{}, 0, nil
		return external
	}
	if external != Success {
		return external
	}
	if r.Leases == nil {
		return s.leasesNotListed(c, r)
	}
	s.ListFailures, s.LastListError = 0, Outcome{}
	terms := *c.Leases
	terms.MaxProtection += s.unansweredFor
	s.lateLeases, s.LastLeases = s.lateLeases.Evaluate(terms, r.Leases, r.ServerTime, r.Ended)
	s.LeasesCountUntil = s.LastLeases.CountUntil
	switch class := s.LastLeases.Outcome.Class; {
	case class == TooFewCandidates && s.Leases.Unhealthy(c.Thresholds) && !s.LastLeases.CountUntil.IsZero():
		return Unknown // few are left of many that stopped, and none of these is back
	case class == TooFewCandidates:
		s.LeasesCountUntil = r.Ended
		return s.withoutLeases()
	case class == OK:
		s.LeasesCountUntil, s.unansweredFor = r.Ended, 0
	}
	s.Leases = s.Leases.After(s.LastLeases.Outcome, c.Thresholds, r.Ended)
	return s.LastLeases.Outcome.Result()
}

// leasesNotListed is the result after an external success without leases. A list that is missing for once is only waited for, and as
// long as what was seen last speaks against a success there is none: what can't be looked at is as it was. While nothing was seen
// yet, as after a restart, that may be so, unless the list is refused, which is so always and nobody's outage.
// One that wasn't begun for our own want of places says nothing of this cluster: others could make it so, and end its
// protection in the middle of an outage.
func (s *State) leasesNotListed(c *Config, r Run) Result {
	if r.ListError.Class == NotRun {
		return Unknown
	}
	s.ListFailures, s.LastListError = min(s.ListFailures+1, c.Thresholds.Failure), r.ListError
	if s.LeasesCountUntil.IsZero() && !r.ListError.Class.isPermanent() {
		s.LeasesCountUntil = r.Ended.Add(c.Leases.MaxProtection)
	}
	if !s.LeasesUnreadable(c) || s.LeasesHoldRestore(c) {
		return Unknown
	}
	return s.withoutLeases()
}

// LeasesUnreadable says whether leases couldn't be listed so often in a row that the external probe alone decides, unless
// LeasesHoldRestore.
func (s *State) LeasesUnreadable(c *Config) bool {
	return c.Leases != nil && s.ListFailures >= c.Thresholds.Failure
}

// LeasesHoldRestore says whether leases that can't be listed keep what was scaled down as it is, until LeasesCountUntil.
func (s *State) LeasesHoldRestore(c *Config) bool {
	return s.LeasesUnreadable(c) && s.At.Before(s.LeasesCountUntil)
}

// LeaseProtectionExpired says whether a protection by leases is over, or none begins, because they stopped too long ago.
func (s *State) LeaseProtectionExpired(c *Config) bool {
	return c.Leases != nil && c.Leases.ProtectionExpired(s.LastLeases)
}

// LeaseConditions are what a status reports of the leases besides their counts.
func (s *State) LeaseConditions(c *Config) [3]bool {
	return [3]bool{s.LeasesUnreadable(c), s.LeasesHoldRestore(c), s.LeaseProtectionExpired(c)}
}

// withoutLeases lets the external probe, which succeeded, decide alone, or nothing would end a protection: leases that aren't
// there and leases that can't be read for long take nothing from anybody, and hold nothing back.
func (s *State) withoutLeases() Result {
	s.Leases, s.unansweredFor = s.Leases.reset(), 0
	return Success
}

// recordSince keeps since when the target is healthy or unhealthy.
func (s *State) recordSince(c *Config, now time.Time) {
	s.UnhealthySince = since(s.UnhealthySince, s.ExternalUnhealthy(c), now)
	s.InternalUnhealthySince = since(s.InternalUnhealthySince, s.Internal.Unhealthy(c.Thresholds), now)
	s.HealthySince = since(s.HealthySince, s.Internal.Healthy(c.Thresholds) && s.ExternalHealthy(c), now)
}

func since(was time.Time, holds bool, now time.Time) time.Time {
	switch {
	case !holds:
		return time.Time{}
	case was.IsZero():
		return now
	default:
		return was
	}
}

// InternalUndetermined is since when the internal probe had no result that counts, once that is longer than results stand for the
// present; else zero. Nothing new is done meanwhile.
func (s *State) InternalUndetermined(c *Config) time.Time {
	return s.Internal.undeterminedSince(c.Thresholds, s.At)
}

// ExternalUndetermined is the same of the external probe, which isn't run while the internal one doesn't succeed.
func (s *State) ExternalUndetermined(c *Config) time.Time {
	if since := s.InternalUndetermined(c); !since.IsZero() {
		return since
	}
	return s.External.undeterminedSince(c.Thresholds, s.At)
}

// ExternalUnhealthy says whether the external probe, or what it saw of the leases, is unhealthy.
func (s *State) ExternalUnhealthy(c *Config) bool {
	return s.External.Unhealthy(c.Thresholds) || c.Leases != nil && s.Leases.Unhealthy(c.Thresholds)
}

// ExternalHealthy says whether the external probe is healthy, and nothing speaks against it in the leases.
func (s *State) ExternalHealthy(c *Config) bool {
	return s.External.Healthy(c.Thresholds) && s.Leases.Errors == 0 && (s.Leases.Successes == 0 || s.Leases.Healthy(c.Thresholds)) && !s.LeasesHoldRestore(c)
}

// decide says what follows from a run. Both its results must be its own: the counts alone never begin anything.
func (s *State) decide(c *Config, outer Result, now time.Time) Direction {
	switch {
	case !s.Internal.Healthy(c.Thresholds):
		return Hold
	case outer == Failure && s.ExternalUnhealthy(c):
		return Down
	case outer == Success && !s.HealthySince.IsZero() && now.Sub(s.HealthySince) >= c.Timings.Settle():
		return Up
	default:
		return Hold
	}
}

// Want is where a target's dependents are to be scaled, by its latest run and its config's state. A decision that is
// stale begins nothing.
func (s *State) Want(may lifecycle.State, now time.Time) (want Direction, withdrawn bool) {
	switch {
	case may.IsWithdrawn():
		return Up, true
	case now.After(s.ValidUntil), may.IsFrozen(), may.HealsOnly() && s.Direction == Down:
		return Hold, false
	default:
		return s.Direction, false
	}
}
