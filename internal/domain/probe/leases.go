package probe

import (
	"hash/maphash"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LeaseSettings say when the nodes' leases count as a failure.
type LeaseSettings struct {
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
func (t LeaseSettings) ExpiresAfter() time.Duration { return t.Grace * 3 / 4 }

// lateAfter is the age from which a lease is watched. A kubelet renews its lease every 10 s, so in a healthy cluster none is.
func (t LeaseSettings) lateAfter() time.Duration { return t.Grace / 2 }

// minUnchanged is how long a lease must not have moved by our own clock before its age is trusted: longer than the 10 s in
// which a kubelet renews it. The clocks of nodes differ, and so an old time alone says nothing.
func (t LeaseSettings) minUnchanged() time.Duration { return max(12*time.Second, t.Grace/4) }

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
	// LeasesUnproven: so many leases look expired that weren't watched for long enough that it isn't known.
	LeasesUnproven Class = "LeasesUnproven"
	// TooFewCandidates: so few nodes have leases that these say nothing.
	TooFewCandidates Class = "TooFewCandidates"
)

// LeaseResult is what the leases say at one moment.
type LeaseResult struct {
	// Candidates are the nodes whose lease was ever renewed, but for those left out; Expired those of them that stopped, Skewed
	// those whose clock is wrong.
	Candidates, Expired, Skewed int
	// Unproven are those whose lease looks expired, and that may yet turn out to be Skewed.
	Unproven int
	// Faulty and TooOld are left out, since no outage explains why they stopped: their Node gives a reason, or they did so
	// longer ago than an outage may last.
	Faulty, TooOld int
	// CountUntil is when the last of the expired ones will be TooOld, by our clock; zero when there is none.
	CountUntil time.Time
	Outcome    Outcome
}

// lateLease is a late lease: its renewTime, since when that is seen by our clock, and whether an earlier one was seen before.
type lateLease struct {
	renewed, since time.Time
	moved          bool
}

// LeaseTracker remembers the leases that are late, by the hashes of their nodes' names: one that is renewed all the same is of a
// node whose clock is behind. It has no entry for the others, so that a healthy cluster costs nothing.
type LeaseTracker map[uint64]lateLease

// maxTracked bounds a tracker, which any server that is probed fills as it likes: Kubernetes is made for 5,000 nodes. Leases that
// are late and find no room there stay unproven, and so scale nothing down.
const maxTracked = 5_000

// hashSeed makes hashes that no server can foresee.
var hashSeed = maphash.MakeSeed()

// Evaluate judges all leases of a cluster. Now is its API server's clock, seen the same moment by ours as at.
func (b LeaseTracker) Evaluate(t LeaseSettings, leases []NodeLease, now, at time.Time) (LeaseTracker, LeaseResult) {
	var j LeaseResult
	tracker := LeaseTracker{}
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
		seen, hasCapacity := b.observe(l, at), len(tracker) < maxTracked
		if hasCapacity {
			tracker[maphash.String(hashSeed, l.Node)] = seen
		}
		if age >= t.ExpiresAfter() {
			j.add(t, l, seen, hasCapacity, age, at)
		}
	}
	j.Candidates -= j.Faulty + j.TooOld
	j.Outcome = t.outcome(j)
	return tracker, j
}

// add takes in a lease that looks expired, which the tracker has capacity for or not.
func (j *LeaseResult) add(t LeaseSettings, l NodeLease, seen lateLease, hasCapacity bool, age time.Duration, at time.Time) {
	still := at.Sub(seen.since)
	switch {
	case hasCapacity && seen.moved && still < t.ExpiresAfter():
		j.Skewed++
		return
	case age >= t.MaxProtection:
		j.TooOld++
		return
	case l.Faulty:
		j.Faulty++
		return
	case !hasCapacity || still < t.minUnchanged():
		j.Unproven++
	default:
		j.Expired++
	}
	if until := at.Add(t.MaxProtection - age); until.After(j.CountUntil) {
		j.CountUntil = until
	}
}

// AppearExpired says whether so many leases look expired that it matters why, however long ago they stopped: for how long that counts isn't
// known here.
func (t LeaseSettings) AppearExpired(leases []NodeLease, now time.Time) bool {
	t.MaxProtection = math.MaxInt64
	_, j := LeaseTracker{}.Evaluate(t, leases, now, now)
	return j.Outcome.Class == LeasesUnproven
}

// observe is what is known of a late lease, now that it was seen at.
func (b LeaseTracker) observe(l NodeLease, at time.Time) lateLease {
	seen, known := b[maphash.String(hashSeed, l.Node)]
	switch {
	case !known:
		return lateLease{renewed: l.Renewed, since: at}
	case !seen.renewed.Equal(l.Renewed):
		return lateLease{renewed: l.Renewed, since: at, moved: true}
	}
	return seen
}

// ProtectionExpired says whether so many leases are TooOld that they would be a failure, did they still count.
func (t LeaseSettings) ProtectionExpired(j LeaseResult) bool {
	before := t.outcome(LeaseResult{Candidates: j.Candidates + j.TooOld, Expired: j.Expired + j.Unproven + j.TooOld})
	return j.TooOld > 0 && before.Class == LeasesExpired && j.Outcome.Class != LeasesExpired && j.Outcome.Class != LeasesUnproven
}

func (t LeaseSettings) outcome(j LeaseResult) Outcome {
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

// faults are the conditions by which a node says that it is at fault itself, with the status at which it does. What
// kube-controller-manager makes of a node that it doesn't hear of, Unknown, is none, nor is what says that a network is missing: so
// do nodes that are well and cut off.
var faults = map[corev1.NodeConditionType]corev1.ConditionStatus{
	corev1.NodeReady:          corev1.ConditionFalse, // only the kubelet itself writes this
	corev1.NodeMemoryPressure: corev1.ConditionTrue, corev1.NodeDiskPressure: corev1.ConditionTrue, corev1.NodePIDPressure: corev1.ConditionTrue,
	// node-problem-detector's, of what a kubelet can't do without
	"KernelDeadlock": corev1.ConditionTrue, "ReadonlyFilesystem": corev1.ConditionTrue, "XfsShutdown": corev1.ConditionTrue, "DiskBadBlock": corev1.ConditionTrue,
	"CperHardwareErrorFatal": corev1.ConditionTrue, "KubeletUnhealthy": corev1.ConditionTrue, "ContainerRuntimeUnhealthy": corev1.ConditionTrue,
	// machine-controller-manager's, of a machine that failed or is scaled down, before it drains it
	"Terminating": corev1.ConditionTrue,
}

// annotationUnmanaged is machine-controller-manager's on a node that has no machine: nobody would replace it.
const annotationUnmanaged = "node.machine.sapcloud.io/not-managed-by-mcm"

// Faulty says whether a node gives a reason of its own for not renewing its lease.
func Faulty(node *corev1.Node) bool {
	if _, unmanaged := node.Annotations[annotationUnmanaged]; unmanaged {
		return true
	}
	for _, c := range node.Status.Conditions {
		updating := c.Type == "InPlaceUpdate" && (c.Reason == "ReadyForUpdate" || c.Reason == "UpdateFailed")
		if updating || c.Status != "" && faults[c.Type] == c.Status {
			return true
		}
	}
	return false
}
