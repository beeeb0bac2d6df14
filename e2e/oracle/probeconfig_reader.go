package oracle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// dependents follows all objects with a scale through a replay.
type dependents struct {
	options Options
	now     map[types.UID]*dependent
	homes   map[string]*home
	// tookAt is when objects were scaled down, and othersAt when someone else scaled up what was, as long as it has its record.
	tookAt, othersAt map[types.UID]time.Time
	// marks are the kubeconfigs that Secrets had, in order.
	marks map[types.NamespacedName][]held
}

func newDependents(o Options) *dependents {
	return &dependents{
		options: o, now: map[types.UID]*dependent{}, homes: map[string]*home{}, tookAt: map[types.UID]time.Time{},
		othersAt: map[types.UID]time.Time{}, marks: map[types.NamespacedName][]held{},
	}
}

func (s *dependents) View(object []byte) (View, error) { return parseDependent(object) }

// OnlyOurs: nobody but the manager writes records.
func (s *dependents) OnlyOurs(before, after View) bool {
	a, ok := before.(*dependent)
	if !ok {
		return false
	}
	return a.takenText != after.(*dependent).takenText
}

func (s *dependents) Read(w *World, c Change) Finding {
	if s.settles(c) || s.supplies(c) {
		return Finding{NotMine: true}
	}
	before, _ := c.Before.(*dependent)
	after, _ := c.After.(*dependent)
	if after == nil {
		delete(s.now, before.uid)
		if c.Ours {
			return broken(OwnOnly, "the manager deleted %s", before)
		}
		return Finding{}
	}
	s.now[after.uid] = after
	s.claims(c, before, after)
	switch {
	case !c.Ours:
		return Finding{}
	case before == nil:
		return broken(OwnOnly, "the manager created %s", after)
	case c.Subresource == "scale":
		return s.scaled(w, c, before, after)
	case c.Subresource != "":
		return Finding{NotMine: true}
	}
	return s.recorded(before, after)
}

// settles takes in a namespace.
func (s *dependents) settles(c Change) bool {
	before, was := c.Before.(*home)
	after, is := c.After.(*home)
	if was && !is {
		delete(s.homes, before.name)
	}
	if is {
		s.homes[after.name] = after
	}
	return was || is
}

// claims takes in whose the replicas of an object are: what others scale up while it is scaled down is theirs until the record is gone.
func (s *dependents) claims(c Change, before, after *dependent) {
	switch {
	case after.taken == nil:
		delete(s.othersAt, after.uid)
	case !c.Ours && before != nil && before.down() && after.replicas != 0:
		s.othersAt[after.uid] = c.At
	}
}

// recorded judges a write to the object itself: the record, and nothing else, before anything is taken and after it is back.
func (s *dependents) recorded(before, after *dependent) Finding {
	switch {
	case !sameForeign(before, after) || before.replicas != after.replicas:
		return broken(OwnOnly, "the manager changed more of %s than its record", after)
	case before.takenText == after.takenText:
		return broken(Once, "a write by the manager that left %s as it was", after)
	case after.labelled != (after.taken != nil):
		return broken(OwnOnly, "the manager left %s with a record alone, or with its label alone", after)
	case before.takenErr != nil || after.takenErr != nil:
		return broken(OwnOnly, "the manager wrote or removed a record on %s that can't be read", after)
	case after.taken == nil:
		return s.forgot(before)
	case after.taken.Replicas != after.replicas || after.replicas == 0:
		return broken(OwnOnly, "the manager recorded %d replicas on %s, which has %d", after.taken.Replicas, after, after.replicas)
	}
	return Finding{}
}

// forgot judges that a record was removed: what has nothing back keeps it, unless its namespace sleeps.
func (s *dependents) forgot(d *dependent) Finding {
	if h := s.homes[d.namespace]; d.replicas == 0 && (h == nil || !h.hibernated) {
		return broken(OwnOnly, "the manager removed the record of %d replicas from %s, which has none", d.taken.Replicas, d)
	}
	return Finding{}
}

// scaled judges a write to the scale.
func (s *dependents) scaled(w *World, c Change, before, after *dependent) Finding {
	switch t := before.taken; {
	case !sameForeign(before, after) || before.takenText != after.takenText:
		return broken(OwnOnly, "the manager changed more of %s than its scale", after)
	case before.replicas == after.replicas:
		return broken(Once, "the manager scaled %s to the %d replicas that it had", after, after.replicas)
	case t == nil || before.takenErr != nil:
		return broken(OwnOnly, "the manager scaled %s from %d to %d without a record", after, before.replicas, after.replicas)
	case before.replicas == 0 && after.replicas == t.Replicas:
		return s.gaveBack(w, c, after)
	case after.replicas != 0:
		return broken(OwnOnly, "the manager scaled %s from %d to %d; its record says %d", after, before.replicas, after.replicas, t.Replicas)
	case before.replicas != t.Replicas:
		return broken(OwnOnly, "the manager took %d replicas from %s, and recorded %d", before.replicas, after, t.Replicas)
	}
	return s.took(w, c, before, after)
}

// gaveBack judges that an object got what was taken from it.
func (s *dependents) gaveBack(w *World, c Change, d *dependent) Finding {
	if d.ignore {
		return broken(OwnOnly, "the manager scaled %s, which asks to be left alone", d)
	}
	for _, cut := range w.cuts {
		lasted := c.At.Sub(cut.from)
		if cut.input == d.namespace && s.tookAt[d.uid].After(cut.from) && (cut.to.IsZero() || c.At.Before(cut.to)) && s.protects(w, c, d, lasted) {
			return broken(Protected, "the manager scaled %s up when its nodes had been cut off for %s", d, lasted)
		}
	}
	return Finding{}
}

// protects says whether a config asks for an object to stay down, at each moment that the manager may have gone by, after its nodes
// have been cut off for so long.
func (s *dependents) protects(w *World, c Change, d *dependent, since time.Duration) bool {
	p := w.Policies[d.taken.Owner]
	if p == nil || !p.Gone.IsZero() || !s.about(p, d, c.At) {
		return false
	}
	return !slices.ContainsFunc(p.InForce(c.At, s.options.Lag), func(spec Spec) bool {
		is, err := readProber(spec.Object)
		return err != nil || is.Mode == "Observe" || !is.names(d) || since >= is.longest()
	})
}

// took judges that an object lost its replicas.
func (s *dependents) took(w *World, c Change, before, after *dependent) Finding {
	t := before.taken
	s.tookAt[after.uid] = c.At
	f := Finding{Acts: []Act{{Policy: t.Owner, Generation: t.Generation, What: "scale down " + after.String()}}}
	add := func(i Invariant, format string, args ...any) {
		f.Broken = append(f.Broken, Broken{i, fmt.Sprintf(format, args...)})
	}
	if before.ignore {
		add(OwnOnly, "the manager scaled %s down, which asks to be left alone", after)
	}
	if before.held && (before.heldUntil.IsZero() || c.At.Before(before.heldUntil)) {
		add(OwnOnly, "the manager scaled %s down, which is held", after)
	}
	if at, others := s.othersAt[after.uid]; others && w.cutOff(after.namespace, at, c.At) {
		add(Once, "the manager took %s again, which someone had scaled up in the same outage", after)
	}
	if s.untried(w, c, t.Owner, after.namespace) {
		add(Validated, "the manager scaled %s down upon an external kubeconfig that never worked", after)
	}
	if p := w.Policies[t.Owner]; p != nil && !s.about(p, after, c.At) {
		add(OwnOnly, "%s is no dependent of %s", after, p.Name)
	}
	down := s.down()
	if most := w.scalable(s.targets(w), c.At, s.options.Lag); down > most {
		add(Limits, "%d targets are scaled down, at most %d may be", down, most)
	}
	return f
}

// about says whether a config named an object, where it is, at some moment that the manager may have gone by.
func (s *dependents) about(p *Policy, d *dependent, at time.Time) bool {
	h := s.homes[d.namespace]
	for _, spec := range p.InForce(at, s.options.Lag) {
		if is, err := readProber(spec.Object); err == nil && h != nil && is.targets(h) && is.names(d) {
			return true
		}
	}
	return false
}

// target is a namespace of a config.
type target struct {
	config    types.UID
	namespace string
}

// down counts the targets of which something is scaled down.
func (s *dependents) down() int {
	down := map[target]bool{}
	for _, d := range s.now {
		if d.down() {
			down[target{d.taken.Owner, d.namespace}] = true
		}
	}
	return len(down)
}

// targets counts all targets. Not all of them need be probed: a percentage is of these at most.
func (s *dependents) targets(w *World) (n int) {
	for _, p := range w.Policies {
		if p.Resource != (ProbeConfigs{}).Policies() || !p.Gone.IsZero() {
			continue
		}
		is, err := readProber(p.Latest)
		for _, h := range s.homes {
			if err == nil && is.targets(h) {
				n++
			}
		}
	}
	return n
}

// scalable is how many of so many targets may be scaled down at once.
func (w *World) scalable(targets int, at time.Time, lag time.Duration) int {
	most := 0
	for _, r := range w.rulesAt(at, lag) {
		least := targets
		for _, limit := range r.ScaledDown {
			least = min(least, targetsOf(limit, targets))
		}
		most = max(most, least)
	}
	return most
}

// targetsOf is a limit as a number: a percentage is 1 at least, unless it is 0.
func targetsOf(limit intstr.IntOrString, targets int) int {
	if limit.Type == intstr.Int {
		return limit.IntValue()
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false)
	if err != nil || percent == 0 {
		return 0
	}
	return max(1, targets*percent/100)
}
