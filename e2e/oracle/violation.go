package oracle

import (
	"fmt"
	"time"
)

// Invariant is what must hold at every event.
type Invariant string

// The invariants.
const (
	// Validated: each write names a policy and a generation of it that existed, was in force and was admissible.
	Validated Invariant = "nothing unvalidated acts"
	// Doubt: while an input is frozen, nothing harmful is done.
	Doubt Invariant = "doubt does nothing"
	// Frozen: while a Guardrail freezes everything, nothing is written to what isn't ours.
	Frozen Invariant = "frozen is frozen"
	// OwnOnly: nothing is changed that our record doesn't own, and nothing is done that it doesn't own afterwards.
	OwnOnly Invariant = "only our own is undone"
	// Limits: no write of ours raises a count above its cap.
	Limits Invariant = "limits hold"
	// Undone: deleting a policy undoes what it did, in time.
	Undone Invariant = "deleting a policy undoes what it did"
	// Protected: what was scaled down while nodes are cut off isn't given back before these can renew their leases, or couldn't for
	// as long as the policy has it.
	Protected Invariant = "a protection isn't given up"
	// Once: nothing is done twice for one reason, and nothing is written that changes nothing.
	Once Invariant = "once"
	// Blind is no invariant: the oracle could not see, so it can't say that the others held.
	Blind Invariant = "the oracle sees everything"
)

// Violation is one broken invariant.
type Violation struct {
	Invariant Invariant
	// At is when, by this machine's clock; Version the resource version of the event, 0 if it has none.
	At      time.Time
	Version uint64
	// Object is what was written, as "nodes/node-1".
	Object string
	// Text says what was wrong, with names and numbers.
	Text string
}

// String is one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s at version %d: %s: %s (violates: %s)", v.At.Format("15:04:05.000"), v.Version, v.Object, v.Text, v.Invariant)
}
