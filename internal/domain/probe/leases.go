package probe

import (
	"time"
)

// LeaseTerms say when the nodes' leases count as a failure.
type LeaseTerms struct {
	// FailureFraction of the candidates must be expired; more than 0 and at most 1.
	FailureFraction float64
	// Grace is the node-monitor-grace-period of the probed cluster.
	Grace time.Duration
	// MinCandidates below which leases say nothing.
	MinCandidates int
}

// ExpiresAfter is the age at which a lease counts as expired: before the cluster's own controllers act, at Grace.
func (t LeaseTerms) ExpiresAfter() time.Duration { return t.Grace * 3 / 4 }

// NodeLease is a node's lease. Leases without a node, and those of nodes that are being deleted, aren't given.
type NodeLease struct {
	Node string
	// Renewed by the node's clock; zero when the lease says nothing.
	Renewed time.Time
}

// TooFewCandidates: so few nodes have leases that these say nothing.
const TooFewCandidates Class = "TooFewCandidates"

// LeasesExpired: too many nodes don't renew their leases.
const LeasesExpired Class = "LeasesExpired"

// LeaseJudgement is what the leases say at one moment.
type LeaseJudgement struct {
	// Candidates are the nodes whose lease was ever renewed, Expired those of them that stopped, Skewed those whose clock
	// is wrong.
	Candidates, Expired, Skewed int
	Outcome                     Outcome
}

// renewal is a renewTime that looked expired, and when it was last seen to change.
type renewal struct{ renewed, movedAt time.Time }

// LeaseBook remembers the leases that looked expired: one that is renewed all the same is of a node whose clock is behind.
// It has no entry for the others, so that a healthy cluster costs nothing.
type LeaseBook map[string]renewal

// Judge judges all leases of a cluster. Now is its API server's clock, seen the same moment by ours as at.
func (b LeaseBook) Judge(t LeaseTerms, leases []NodeLease, now, at time.Time) (LeaseBook, LeaseJudgement) {
	var j LeaseJudgement
	book := LeaseBook{}
	for _, l := range leases {
		if l.Renewed.IsZero() {
			continue
		}
		j.Candidates++
		age := now.Sub(l.Renewed)
		if age < -t.ExpiresAfter() {
			j.Skewed++
		}
		if age < t.ExpiresAfter() {
			continue
		}
		seen, known := b[l.Node]
		if !known {
			seen = renewal{renewed: l.Renewed}
		} else if !seen.renewed.Equal(l.Renewed) {
			seen = renewal{renewed: l.Renewed, movedAt: at}
		}
		book[l.Node] = seen
		if !seen.movedAt.IsZero() && at.Sub(seen.movedAt) < t.ExpiresAfter() {
			j.Skewed++
			continue
		}
		j.Expired++
	}
	j.Outcome = t.outcome(j)
	return book, j
}

func (t LeaseTerms) outcome(j LeaseJudgement) Outcome {
	switch {
	case j.Candidates < max(1, t.MinCandidates):
		return Outcome{Class: TooFewCandidates}
	case float64(j.Expired) >= t.FailureFraction*float64(j.Candidates):
		return Outcome{Class: LeasesExpired}
	default:
		return Outcome{Class: OK}
	}
}
