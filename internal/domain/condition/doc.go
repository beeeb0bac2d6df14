// Package condition decides which node gets which taint from the ConditionSets that match it. It is pure: time comes in
// as an argument, and nothing here reads or writes a cluster. Fleet holds what is known, Decide plans one node, Forecast
// computes what a set would do; admission, controller and CLI share them, so that a forecast equals what is then done.
// Begin at PlanNode (decide.go).
//
// A set's claim on a node's taint, which the node's record (ownership.go) keeps:
//
//	Matching for `for`, no Gate closed ──► claimed ── evictAfter over ──► NoExecute
//	                                        │  ▲                            │
//	        someone removed the taint ──────┘  └── put back, with backoff   │
//	                                        │                               │
//	Clear for recoverAfter, deselected, ────┴───────────────────────────────┴──► dropped, the taint is removed
//	set changed, deleted or observing
//
// Doubtful keeps a claim as it is and makes none. A closed Gate, of a hold, a limit or a breaker, is a Hold in the plan: the
// node waits in that limit's queue (headroom.go) until Fleet requeues it.
package condition
