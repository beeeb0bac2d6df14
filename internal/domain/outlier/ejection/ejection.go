// Package ejection tells from what Envoys answered which hosts are ejected now, and what nobody can tell.
package ejection

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// StaleAfter is how long an answer is believed. Envoys are asked three times in it.
const StaleAfter = 15 * time.Second

// Scope is what an Envoy may be believed about: the namespaces that it gets configuration of.
type Scope struct {
	// Identity is the name in its certificate by which it may.
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

// Envoy is what is known of one that is asked.
type Envoy struct {
	// Name of its pod as namespace/name, or its address.
	Name string
	// Scope is nil while it hasn't shown who it is: it may be about anything.
	Scope *Scope
	// Asked for the first time.
	Asked time.Time
	// Answered last; zero for never.
	Answered time.Time
	// Problem is why it doesn't answer; "" if it did when it was asked last.
	Problem string
	// newest problem of those that it had.
	newest string
	// Ejected are its ejected hosts by that answer, each since when it is seen to be.
	Ejected map[Host]time.Time
}

// told says whether an Envoy has answered lately, and waits while it was asked for the first time only just now.
func (e *Envoy) told(now time.Time) (fresh, waits bool) {
	return !e.Answered.IsZero() && now.Sub(e.Answered) <= StaleAfter, e.Answered.IsZero() && now.Sub(e.Asked) <= StaleAfter
}

// concerns says whether an Envoy may have ejected hosts of a namespace's Services.
func (e *Envoy) concerns(namespace string) bool { return e.Scope == nil || e.Scope.Has(namespace) }

// After is what is known of an Envoy once it has answered. Where it was silent for so long that a host may have been back in
// between, the ejection is told as seen since now.
func (e *Envoy) After(scope Scope, ejected []Host, now time.Time) Envoy {
	fresh, _ := e.told(now)
	after := Envoy{Name: e.Name, Scope: &scope, Asked: e.Asked, Answered: now, Ejected: make(map[Host]time.Time, len(ejected))}
	for _, h := range ejected {
		since, before := e.Ejected[h]
		if !fresh || !before {
			since = now
		}
		if scope.Has(h.Cluster.Service.Namespace) { // of others it is not believed
			after.Ejected[h] = since
		}
	}
	return after
}

// Failed is what is known of an Envoy that didn't answer. Another problem than the one that is told is told once it came twice in a
// row: two that take turns would be news each time.
func (e Envoy) Failed(problem string) Envoy {
	if e.Problem == "" || problem == e.newest {
		e.Problem = problem
	}
	e.newest = problem
	return e
}

// Silent is an Envoy that doesn't answer.
type Silent struct {
	Name    string
	Problem string
}

// View is what all Envoys say at one moment.
type View struct {
	envoys []Envoy
	now    time.Time
	// Missing are Services that were to lead to Envoys and don't, each with the reason.
	Missing []string
}

// NewView puts together what is known of all Envoys that are asked.
func NewView(envoys []Envoy, missing []string, now time.Time) *View {
	envoys = slices.SortedFunc(slices.Values(envoys), func(a, b Envoy) int { return cmp.Compare(a.Name, b.Name) })
	return &View{envoys: envoys, now: now, Missing: missing}
}

// Waits says whether Envoys that a namespace has to do with were asked only just now: what was told before is left to stand.
func (v *View) Waits(namespace string) bool {
	return slices.ContainsFunc(v.envoys, func(e Envoy) bool {
		_, waits := e.told(v.now)
		return waits && e.concerns(namespace)
	})
}

// Silent are the Envoys of which nobody knows what they have ejected of a namespace.
func (v *View) Silent(namespace string) (all []Silent) {
	for _, e := range v.envoys {
		if fresh, waits := e.told(v.now); !fresh && !waits && e.concerns(namespace) {
			all = append(all, Silent{e.Name, e.Problem})
		}
	}
	return all
}

// Answering counts the Envoys that say what they have ejected of a namespace.
func (v *View) Answering(namespace string) (n int) {
	for _, of := range v.answering(namespace) {
		n += of
	}
	return n
}

// answering counts them by identity.
func (v *View) answering(namespace string) map[string]int {
	by := map[string]int{}
	for _, e := range v.envoys {
		if fresh, _ := e.told(v.now); fresh && e.concerns(namespace) {
			by[e.Scope.Identity]++
		}
	}
	return by
}

// NotAsked counts those of the Envoys that get a namespace's clusters, given by identity, that don't say what they have ejected of it.
// Which ones they are nobody knows: where they connect from needn't be where they are asked.
func (v *View) NotAsked(namespace string, connected map[string]int) (n int) {
	answering := v.answering(namespace)
	for identity, of := range connected {
		n += max(0, of-answering[identity])
	}
	return n
}

// Count gives how many Envoys answer, and how many are silent.
func (v *View) Count() (answering, silent int) {
	for _, e := range v.envoys {
		switch fresh, waits := e.told(v.now); {
		case fresh:
			answering++
		case !waits:
			silent++
		}
	}
	return answering, silent
}

// Ejected counts the hosts that answering Envoys have ejected.
func (v *View) Ejected() int {
	all := map[Host]bool{}
	for _, e := range v.envoys {
		if fresh, _ := e.told(v.now); fresh {
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

// Of tells of one host; ok is false when no Envoy says that it is ejected.
func (v *View) Of(h Host) (x Ejection, ok bool) {
	for _, e := range v.envoys {
		since, ejected := e.Ejected[h]
		if fresh, _ := e.told(v.now); !fresh || !ejected {
			continue
		}
		if x.Envoys++; x.Since.IsZero() || since.Before(x.Since) {
			x.Since = since
		}
	}
	return x, x.Envoys > 0
}

// Same says whether another view tells the same.
func (v *View) Same(other *View) bool {
	return slices.Equal(v.Missing, other.Missing) && slices.EqualFunc(v.envoys, other.envoys, func(a, b Envoy) bool {
		freshA, waitsA := a.told(v.now)
		freshB, waitsB := b.told(other.now)
		return a.Name == b.Name && freshA == freshB && waitsA == waitsB && (a.Problem == b.Problem || freshA) && maps.Equal(a.Ejected, b.Ejected)
	})
}
