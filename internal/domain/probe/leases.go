package probe

import (
	"hash/maphash"
	"math"
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
	// MaxProtection is the age at which an expired lease doesn't count any more: no outage is taken to last for longer.
	MaxProtection time.Duration
}

// ExpiresAfter is the age at which a lease counts as expired: before the cluster's own controllers act, at Grace.
func (t LeaseTerms) ExpiresAfter() time.Duration { return t.Grace * 3 / 4 }

// lateAfter is the age from which a lease is watched. A kubelet renews its lease every 10 s, so in a healthy cluster none is.
func (t LeaseTerms) lateAfter() time.Duration { return t.Grace / 2 }

// stillFor is how long a lease must not have moved by our own clock before its age is believed: longer than the 10 s in
// which a kubelet renews it. The clocks of nodes differ, and so an old time alone says nothing.
func (t LeaseTerms) stillFor() time.Duration { return max(12*time.Second, t.Grace/4) }

// NodeLease is a node's lease. Leases without a node, and those of nodes that are being deleted, aren't given.
type NodeLease struct {
	Node string
	// Renewed by the node's clock; zero when the lease says nothing.
	Renewed time.Time
	// Faulty: its Node says why it doesn't renew it, see Faulty.
	Faulty bool
}

// What leases say, besides OK. Only LeasesExpired is a failure; the others count nothing.
const (
	// LeasesExpired: too many nodes don't renew their leases.
	LeasesExpired Class = "LeasesExpired"
	// LeasesUnproven: so many leases look expired that weren't watched for long enough that it can't be told.
	LeasesUnproven Class = "LeasesUnproven"
	// TooFewCandidates: so few nodes have leases that these say nothing.
	TooFewCandidates Class = "TooFewCandidates"
)

// LeaseJudgement is what the leases say at one moment.
type LeaseJudgement struct {
	// Candidates are the nodes whose lease was ever renewed, but for those left out; Expired those of them that stopped, Skewed
	// those whose clock is wrong.
	Candidates, Expired, Skewed int
	// Unproven are those whose lease looks expired, and that may yet turn out to be Skewed.
	Unproven int
	// Faulty and Outlasted are left out, since no outage explains why they stopped: their Node gives a reason, or they did so
	// longer ago than an outage may last.
	Faulty, Outlasted int
	// Until is when the last of the expired ones will be Outlasted, by our clock; zero when there is none.
	Until   time.Time
	Outcome Outcome
}

// renewal is a late lease: its renewTime, since when that is seen by our clock, and whether an earlier one was seen before.
type renewal struct {
	renewed, since time.Time
	moved          bool
}

// LeaseBook remembers the leases that are late, by the hashes of their nodes' names: one that is renewed all the same is of a
// node whose clock is behind. It has no entry for the others, so that a healthy cluster costs nothing.
type LeaseBook map[uint64]renewal

// mostLate bounds a book, which any server that is probed fills as it likes: Kubernetes is made for 5,000 nodes. Leases that
// are late and find no room stay unproven, and so scale nothing down.
const mostLate = 5_000

// bookSeed makes hashes that no server can foresee.
var bookSeed = maphash.MakeSeed()

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
		if age < t.lateAfter() {
			continue
		}
		seen, room := b.see(l, at), len(book) < mostLate
		if room {
			book[maphash.String(bookSeed, l.Node)] = seen
		}
		if age >= t.ExpiresAfter() {
			j.add(t, l, seen, room, age, at)
		}
	}
	j.Candidates -= j.Faulty + j.Outlasted
	j.Outcome = t.outcome(j)
	return book, j
}

// add takes in a lease that looks expired, for which there is room in the book or not.
func (j *LeaseJudgement) add(t LeaseTerms, l NodeLease, seen renewal, room bool, age time.Duration, at time.Time) {
	still := at.Sub(seen.since)
	switch {
	case room && seen.moved && still < t.ExpiresAfter():
		j.Skewed++
		return
	case age >= t.MaxProtection:
		j.Outlasted++
		return
	case l.Faulty:
		j.Faulty++
		return
	case !room || still < t.stillFor():
		j.Unproven++
	default:
		j.Expired++
	}
	if until := at.Add(t.MaxProtection - age); until.After(j.Until) {
		j.Until = until
	}
}

// Suspects says whether so many leases look expired that it matters why, however long ago they stopped: for how long that counts isn't
// known here.
func (t LeaseTerms) Suspects(leases []NodeLease, now time.Time) bool {
	t.MaxProtection = math.MaxInt64
	_, j := LeaseBook{}.Judge(t, leases, now, now)
	return j.Outcome.Class == LeasesUnproven
}

// see is what is known of a late lease, now that it was seen at.
func (b LeaseBook) see(l NodeLease, at time.Time) renewal {
	seen, known := b[maphash.String(bookSeed, l.Node)]
	switch {
	case !known:
		return renewal{renewed: l.Renewed, since: at}
	case !seen.renewed.Equal(l.Renewed):
		return renewal{renewed: l.Renewed, since: at, moved: true}
	}
	return seen
}

// GaveUp says whether so many leases are Outlasted that they would be a failure, did they still count.
func (t LeaseTerms) GaveUp(j LeaseJudgement) bool {
	before := t.outcome(LeaseJudgement{Candidates: j.Candidates + j.Outlasted, Expired: j.Expired + j.Unproven + j.Outlasted})
	return j.Outlasted > 0 && before.Class == LeasesExpired && j.Outcome.Class != LeasesExpired && j.Outcome.Class != LeasesUnproven
}

func (t LeaseTerms) outcome(j LeaseJudgement) Outcome {
	reached := func(n int) bool { return float64(n) >= t.FailureFraction*float64(j.Candidates) }
	switch {
	case j.Candidates < max(1, t.MinCandidates):
		return Outcome{Class: TooFewCandidates}
	case reached(j.Expired):
		return Outcome{Class: LeasesExpired}
	case reached(j.Expired + j.Unproven):
		return Outcome{Class: LeasesUnproven}
	default:
		return Outcome{Class: OK}
	}
}
