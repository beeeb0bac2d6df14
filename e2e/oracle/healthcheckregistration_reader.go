package oracle

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// subjects follows all targets, and what their checks look at, through a replay.
type subjects struct {
	kinds   HealthCheckRegistrations
	options Options
	world   *World
	rights  rights
	past    map[schema.GroupVersionKind]map[types.NamespacedName][]revised
	changes map[schema.GroupVersionKind][]time.Time
	marks   map[types.UID]map[string]*mark // by target and condition type
	// breakers are by the registration's name: one that is made anew has no new allowance.
	breakers map[string]*breaker
	language *cel.Env
	programs map[string]cel.Program // nil for what can't be compiled here
}

// rightsKind stands for all that rights follow from.
var rightsKind = schema.GroupVersionKind{Group: rbacv1.GroupName}

// mark is what is remembered of one condition of a target.
type mark struct {
	// since is when it came; zero while it isn't there. Definite is True or False, what it last was of both, whoever wrote that; "" for one
	// that never was since it came.
	since    time.Time
	definite string
	// ours is what we left there last; nil before we did.
	ours *left
	// by are the registrations that had a say in that.
	by []types.UID
}

func newSubjects(k HealthCheckRegistrations, o Options) *subjects {
	return &subjects{
		kinds: k, options: o, past: map[schema.GroupVersionKind]map[types.NamespacedName][]revised{}, changes: map[schema.GroupVersionKind][]time.Time{},
		marks: map[types.UID]map[string]*mark{}, breakers: map[string]*breaker{}, language: newLanguage(), programs: map[string]cel.Program{},
	}
}

func (s *subjects) mark(t *thing, conditionType string) *mark {
	of := s.marks[t.GetUID()]
	if of == nil {
		of = map[string]*mark{}
		s.marks[t.GetUID()] = of
	}
	if of[conditionType] == nil {
		of[conditionType] = &mark{}
	}
	return of[conditionType]
}

// OnlyOurs: people may write both claims and conditions.
func (s *subjects) OnlyOurs(View, View) bool { return false }

func (s *subjects) Read(w *World, c Change) Finding {
	s.world = w
	switch is := cmp.Or(c.After, c.Before).(type) {
	case *role:
		s.rights.role(c.At, is, c.After == nil)
		s.changes[rightsKind] = append(s.changes[rightsKind], c.At)
	case *binding:
		s.rights.binding(c.At, is, c.After == nil)
		s.changes[rightsKind] = append(s.changes[rightsKind], c.At)
	case *thing:
		before, _ := c.Before.(*thing)
		after, _ := c.After.(*thing)
		f := Finding{NotMine: true}
		isTarget := slices.ContainsFunc(s.kinds.Targets, func(k Followed) bool { return k.gvk() == is.GroupVersionKind() })
		if c.Ours && isTarget {
			f = s.ours(c, before, after)
		}
		s.see(c.At, is.key(), after)
		if isTarget && after != nil {
			s.remember(c.At, cmp.Or(before, &thing{Unstructured: &unstructured.Unstructured{}}), after)
		}
		return f
	}
	return Finding{NotMine: c.Ours}
}

// see takes in what has a name from now on.
func (s *subjects) see(at time.Time, key thingKey, is *thing) {
	if s.past[key.kind] == nil {
		s.past[key.kind] = map[types.NamespacedName][]revised{}
	}
	s.past[key.kind][key.name] = append(s.past[key.kind][key.name], revised{at, is})
	s.changes[key.kind] = append(s.changes[key.kind], at)
}

// remember takes in what a target's conditions say, whoever wrote them.
func (s *subjects) remember(at time.Time, before, after *thing) {
	for _, e := range slices.Concat(before.conditions(), after.conditions()) {
		is, m := after.condition(e.text("type")), s.mark(after, e.text("type"))
		switch {
		case is == nil:
			m.since, m.definite = time.Time{}, ""
		case m.since.IsZero():
			m.since = at
		}
		if is.status() == "True" || is.status() == "False" {
			m.definite = is.status()
		}
	}
}

// ours judges a write of the manager's to a target.
func (s *subjects) ours(c Change, before, after *thing) Finding {
	switch {
	case before == nil:
		return broken(OwnOnly, "the manager created %s", after)
	case after == nil:
		return broken(OwnOnly, "the manager deleted %s", before)
	case c.Subresource == "":
		return s.record(c, before, after)
	case c.Subresource != "status":
		return Finding{NotMine: true}
	}
	conditionTypes, all := apart(before, after)
	switch {
	case !all || len(conditionTypes) > 1:
		return broken(OwnOnly, "the manager changed more than one condition of %s: %q", after, conditionTypes)
	case len(conditionTypes) == 0:
		return broken(Once, "a write by the manager that left %s as it was", after)
	}
	w := &conditionWrite{
		Change: c, key: after.key(), target: after, conditionType: conditionTypes[0], was: before.condition(conditionTypes[0]), is: after.condition(conditionTypes[0]),
		mark: s.mark(after, conditionTypes[0]),
	}
	s.judge(w)
	s.contest(w)
	return w.found
}

// conditionWrite is one of the manager's.
type conditionWrite struct {
	Change
	key           thingKey
	target        *thing
	conditionType string
	was, is       entry // nil for none
	mark          *mark
	found         Finding
}

func (w *conditionWrite) broke(i Invariant, format string, args ...any) {
	w.found.Broken = append(w.found.Broken, Broken{i, fmt.Sprintf("condition %s of %s: ", w.conditionType, w.target) + fmt.Sprintf(format, args...)})
}

// record judges a write to the target itself: what is claimed, and nothing else.
func (s *subjects) record(c Change, before, after *thing) Finding {
	had, has := before.claims(), after.claims()
	switch {
	case !reflect.DeepEqual(before.unclaimed(), after.unclaimed()):
		return broken(OwnOnly, "the manager changed more of %s than which conditions are its own", after)
	case slices.Equal(had, has):
		return broken(Once, "a write by the manager that left %s as it was", after)
	}
	var f Finding
	for _, conditionType := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(had, has)))) {
		w := &conditionWrite{Change: c, key: after.key(), target: after, conditionType: conditionType, mark: s.mark(after, conditionType)}
		m := w.mark
		switch {
		case !slices.Contains(had, conditionType):
			s.decided(w, "claim")
			if !m.since.IsZero() && c.At.Sub(m.since) > s.options.Lag {
				w.broke(OwnOnly, "the manager claimed it, and it had been there for %s", c.At.Sub(m.since))
			}
		case !slices.Contains(has, conditionType) && m.ours != nil && m.ours.says != "" && m.ours.says == before.condition(conditionType).says():
			w.broke(OwnOnly, "the manager forgot that it wrote it, and it is still there")
		}
		f.Acts, f.Broken = append(f.Acts, w.found.Acts...), append(f.Broken, w.found.Broken...)
	}
	return f
}

// judge judges a condition that was written or removed.
func (s *subjects) judge(w *conditionWrite) {
	claimed, _ := s.over(w.At, []schema.GroupVersionKind{w.key.kind}, func(m time.Time) bool {
		t := s.asOf(w.key, m)
		return t != nil && t.claimed(w.conditionType)
	})
	if w.is == nil {
		s.removed(w, claimed)
		return
	}
	switch {
	case !claimed:
		w.broke(OwnOnly, "the manager wrote it without claiming it before")
	case w.was != nil && !w.was.byChecks():
		w.broke(OwnOnly, "the manager wrote it in the place of somebody else's, %s", w.was.says())
	case !w.is.byChecks():
		w.broke(OwnOnly, "the manager wrote %s, which nobody will know as its own", w.is.says())
	case w.was.says() == w.is.says() && (w.was["observedGeneration"] == nil || w.was["observedGeneration"] == w.is["observedGeneration"]):
		w.broke(Once, "the manager wrote what was there")
	}
	if s.heldFor(w) && !w.heals() {
		w.broke(OwnOnly, "the manager wrote it on what people hold")
	}
	deciders := s.decided(w, "write")
	s.doubts(w, deciders)
	s.flips(w, deciders)
}

// heals says whether a condition of ours turned from False to True, which is done whatever is paused.
func (w *conditionWrite) heals() bool { return w.was.status() == "False" && w.is.status() == "True" }

// heldFor says whether people have held a target for so long that the manager must know it.
func (s *subjects) heldFor(w *conditionWrite) bool {
	_, always := s.over(w.At, []schema.GroupVersionKind{w.key.kind}, func(m time.Time) bool {
		t := s.asOf(w.key, m)
		return t != nil && t.held(w.At)
	})
	return always
}

// removed judges that a condition was taken off: it was ours, or a registration asks for that, and nobody decides it.
func (s *subjects) removed(w *conditionWrite, claimed bool) {
	asks := s.deciders(w.At, w.key, func(r *registering) bool { return r.takesOff(w.conditionType) })
	switch {
	case !w.was.byChecks():
		w.broke(OwnOnly, "the manager removed it, and it isn't of the form of checks: %s", w.was.says())
	case !claimed && len(asks) == 0:
		w.broke(OwnOnly, "the manager removed it, and hadn't claimed it")
	}
	for _, d := range s.deciders(w.At, w.key, func(r *registering) bool { return r.writes(w.conditionType) }) {
		if d.surely {
			w.broke(Doubt, "the manager removed it, and %s decides it", d.policy.Name)
		}
	}
}

// decided finds who has a say in a condition that is written or claimed: without any that is no policy's doing, and each that surely has one must
// be in force, unless it only heals.
func (s *subjects) decided(w *conditionWrite, verb string) []decider {
	all := s.deciders(w.At, w.key, func(r *registering) bool { return r.writes(w.conditionType) })
	if len(all) == 0 {
		w.broke(Validated, "the manager did %s it, and no registration decides it", verb)
		return nil
	}
	w.mark.by = nil
	sure := slices.DeleteFunc(slices.Clone(all), func(d decider) bool { return !d.surely })
	for _, d := range all {
		w.mark.by = append(w.mark.by, d.uid)
	}
	if len(sure) == 0 {
		sure = all[:1]
	}
	for _, d := range sure {
		if d.surely && s.suspended(w, d) {
			w.broke(Doubt, "the manager did %s it while %s suspends the target", verb, d.policy.Name)
		}
		if !w.heals() {
			w.found.Acts = append(w.found.Acts, Act{Policy: d.uid, Generation: d.generation, What: fmt.Sprintf("%s condition %s", verb, w.conditionType)})
		}
	}
	return all
}

func (s *subjects) suspended(w *conditionWrite, d decider) bool {
	_, always := s.over(w.At, []schema.GroupVersionKind{w.key.kind}, func(m time.Time) bool {
		t := s.asOf(w.key, m)
		return t != nil && !slices.ContainsFunc(d.specs, func(r registering) bool {
			suspends, ok := ask[bool](s, r.SuspendWhen, t, nil)
			return !ok || !suspends
		})
	})
	return always
}
