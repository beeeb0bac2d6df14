// Package weeder decides which pods are deleted after a Service that they depend on recovered, so that they restart now and
// not after the kubelet's back-off. It is pure: time comes in as an argument, and nothing here reads or writes a cluster.
// State holds what is known, PlanPod plans one pod, Forecast tells what a WeederConfig would do; admission, controller and
// CLI share them, so that a forecast equals what is then done. Begin at PlanPod (plan.go) and State.Decide.
//
// A Service that a config watches:
//
//	notReady ── turns Ready ──► pending ── its pods show when ──► window ── watchDuration is over ──► Ready
//	   ▲                           │                                │                                  │
//	   └───────────────────────────┴────────── turns notReady ──────┴──────────────────────────────────┘
//
// A pod that crash-loops in a window:
//
//	Claim: what earlier leaders did is known
//	Decide ──► held: Plan.Holds say why, and when to decide again
//	       ──► Delete: its headroom under all limits is reserved ── Revalidate, request ──► Confirm: never deleted again
//	                                                                              ──► Failed: the headroom is released
//	                                                                              ──► unknown: ReadLive ── ObserveLive or ForgetPod
package weeder
