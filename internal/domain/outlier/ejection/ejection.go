// Package ejection derives from the answers of polled Envoys which hosts are ejected now, and for which namespaces that isn't known.
//
// An Envoy is in one of these states, by the time of its last answer:
//
//	pending ──(answer)──> fresh ──(no answer for StaleAfter)──> silent ──(answer)──> fresh
//	   └──(no answer for StaleAfter since it was first polled)──> silent
//
// Begin to read at View.
package ejection

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// StaleAfter is how long an answer is fresh. Envoys are polled three times in it.
const StaleAfter = 15 * time.Second

// Scope are the namespaces that an Envoy gets configuration of. Its answers count for these only.
type Scope struct {
	// Identity is the name in its certificate that the scope is for.
	Identity   string
	All        bool
	Namespaces map[string]bool
}

// Has says whether a namespace is in it.
func (s Scope) Has(namespace string) bool { return s.All || s.Namespaces[namespace] }

// Host of a cluster, as ip:port.
type Host struct {
	Cluster outlier.Key
	Address string
}

// Envoy is what is known of one that is polled.
type Envoy struct {
	// Name of its pod as namespace/name, or its address.
	Name string
	// Scope is nil before it has authenticated: then it may have any namespace's clusters.
	Scope *Scope
	// FirstPolled is when it was polled first.
	FirstPolled time.Time
	// LastAnswered is when it answered last; zero for never.
	LastAnswered time.Time
	// Problem is why it doesn't answer; "" if it answered the last poll.
	Problem string
	// lastProblem is the one of the last poll.
	lastProblem string
	// Ejected are its ejected hosts by that answer, each with the time since when it has been observed.
	Ejected map[Host]time.Time
}

// freshness says whether the last answer is fresh, and whether it is pending: it was first polled only just now.
func (e *Envoy) freshness(now time.Time) (fresh, pending bool) {
	return !e.LastAnswered.IsZero() && now.Sub(e.LastAnswered) <= StaleAfter, e.LastAnswered.IsZero() && now.Sub(e.FirstPolled) <= StaleAfter
}

// maySee says whether an Envoy may have ejected hosts of a namespace's Services.
func (e *Envoy) maySee(namespace string) bool { return e.Scope == nil || e.Scope.Has(namespace) }

// WithAnswer is the Envoy with a new answer. If it was silent so long that a host may have returned in between, its ejections count from
// now.
func (e *Envoy) WithAnswer(scope Scope, ejected []Host, now time.Time) Envoy {
	fresh, _ := e.freshness(now)
	after := Envoy{Name: e.Name, Scope: &scope, FirstPolled: e.FirstPolled, LastAnswered: now, Ejected: make(map[Host]time.Time, len(ejected))}
	for _, h := range ejected {
		since, before := e.Ejected[h]
		if !fresh || !before {
			since = now
		}
		if scope.Has(h.Cluster.Service.Namespace) { // its answer doesn't count for other namespaces
			after.Ejected[h] = since
		}
	}
	return after
}

// WithProblem is the Envoy after a failed poll. A different problem than the reported one is reported once it came twice in a row: two that
// alternate would change the status each time.
func (e Envoy) WithProblem(problem string) Envoy {
	if e.Problem == "" || problem == e.lastProblem {
		e.Problem = problem
	}
	e.lastProblem = problem
	return e
}

// Silent is an Envoy that doesn't answer.
type Silent struct {
	Name    string
	Problem string
}

// View are the answers of all Envoys at one moment.
type View struct {
	envoys []Envoy
	now    time.Time
	// Missing are configured Services without Envoys, each with the reason.
	Missing []string
}

// NewView makes one of all polled Envoys.
func NewView(envoys []Envoy, missing []string, now time.Time) *View {
	envoys = slices.SortedFunc(slices.Values(envoys), func(a, b Envoy) int { return cmp.Compare(a.Name, b.Name) })
	return &View{envoys: envoys, now: now, Missing: missing}
}

// Pending says whether Envoys that may see a namespace were polled only just now: what was reported before stays.
func (v *View) Pending(namespace string) bool {
	return slices.ContainsFunc(v.envoys, func(e Envoy) bool {
		_, pending := e.freshness(v.now)
		return pending && e.maySee(namespace)
	})
}

// Silent are the Envoys without a fresh answer that may have ejected hosts of a namespace.
func (v *View) Silent(namespace string) (all []Silent) {
	for _, e := range v.envoys {
		if fresh, pending := e.freshness(v.now); !fresh && !pending && e.maySee(namespace) {
			all = append(all, Silent{e.Name, e.Problem})
		}
	}
	return all
}

// Answering counts the Envoys with a fresh answer that may see a namespace.
func (v *View) Answering(namespace string) (n int) {
	for _, count := range v.answering(namespace) {
		n += count
	}
	return n
}

// answering counts them by identity.
func (v *View) answering(namespace string) map[string]int {
	by := map[string]int{}
	for _, e := range v.envoys {
		if fresh, _ := e.freshness(v.now); fresh && e.maySee(namespace) {
			by[e.Scope.Identity]++
		}
	}
	return by
}

// NotPolled counts the Envoys that get a namespace's clusters, given by identity, less those with a fresh answer. Which ones they are isn't
// known: the address of their connection isn't the one that is polled.
func (v *View) NotPolled(namespace string, connected map[string]int) (n int) {
	answering := v.answering(namespace)
	for identity, count := range connected {
		n += max(0, count-answering[identity])
	}
	return n
}

// Count returns how many Envoys answer, and how many are silent.
func (v *View) Count() (answering, silent int) {
	for _, e := range v.envoys {
		switch fresh, pending := e.freshness(v.now); {
		case fresh:
			answering++
		case !pending:
			silent++
		}
	}
	return answering, silent
}

// Ejected counts the hosts that answering Envoys have ejected.
func (v *View) Ejected() int {
	all := map[Host]bool{}
	for _, e := range v.envoys {
		if fresh, _ := e.freshness(v.now); fresh {
			for h := range e.Ejected {
				all[h] = true
			}
		}
	}
	return len(all)
}

// Ejection is a host that Envoys have ejected.
type Ejection struct {
	// Envoys have it ejected.
	Envoys int
	// Since the first of them was seen to have.
	Since time.Time
}

// EjectionOf returns a host's ejection; ok is false when no Envoy with a fresh answer has it ejected.
func (v *View) EjectionOf(h Host) (x Ejection, ok bool) {
	for _, e := range v.envoys {
		since, ejected := e.Ejected[h]
		if fresh, _ := e.freshness(v.now); !fresh || !ejected {
			continue
		}
		if x.Envoys++; x.Since.IsZero() || since.Before(x.Since) {
			x.Since = since
		}
	}
	return x, x.Envoys > 0
}

// SameAs says whether another view would be reported in the same way.
func (v *View) SameAs(other *View) bool {
	return slices.Equal(v.Missing, other.Missing) && slices.EqualFunc(v.envoys, other.envoys, func(a, b Envoy) bool {
		freshA, pendingA := a.freshness(v.now)
		freshB, pendingB := b.freshness(other.now)
		return a.Name == b.Name && freshA == freshB && pendingA == pendingB && (a.Problem == b.Problem || freshA) && maps.Equal(a.Ejected, b.Ejected)
	})
}
