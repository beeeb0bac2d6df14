package oracle

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// doubts judges that a condition turned: False only if something that it is about may be unwell, and could be read; True only if nothing surely is.
func (s *subjects) doubts(w *conditionWrite, deciders []decider) {
	turns := func(status string) bool { return w.is.status() == status && w.was.status() != status }
	switch {
	case len(deciders) == 0:
	case turns("False") && !s.mayBeUnwell(w, deciders):
		w.broke(Doubt, "the manager turned it False, and all that its checks look at was well, or couldn't be read")
	case turns("True"):
		for _, d := range deciders {
			if d.surely && s.surelyUnwell(w, d) {
				w.broke(Doubt, "the manager turned it True, and what a check of %s looks at wasn't well", d.policy.Name)
			}
		}
	}
}

// mayBeUnwell says whether there was a moment at which a check could be made, and may have found something unwell.
func (s *subjects) mayBeUnwell(w *conditionWrite, deciders []decider) bool {
	for _, d := range deciders {
		for _, r := range d.specs {
			if slices.ContainsFunc(r.of(w.conditionType), func(c check) bool {
				ever, _ := s.over(w.At, s.readFor(w, c), func(m time.Time) bool {
					t := s.asOf(w.key, m)
					return t != nil && s.look(c, t, m) != well && s.readable(w, c, m)
				})
				return ever
			}) {
				return true
			}
		}
	}
	return false
}

func (s *subjects) surelyUnwell(w *conditionWrite, d decider) bool {
	return !slices.ContainsFunc(d.specs, func(r registering) bool {
		return !slices.ContainsFunc(r.of(w.conditionType), func(c check) bool {
			_, always := s.over(w.At, s.readFor(w, c), func(m time.Time) bool { return s.look(c, s.asOf(w.key, m), m) == unwell })
			return always
		})
	})
}

// readFor are the kinds that a check of a target depends on.
func (s *subjects) readFor(w *conditionWrite, c check) []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{w.key.kind, rightsKind}
	if looked, ok := s.kindOf(c); ok {
		kinds = append(kinds, looked.gvk())
	}
	return kinds
}

// authorizing is how long the API server may take to notice that a right is lost.
const authorizing = 50 * time.Millisecond

// readable says whether the manager had the right to read what a check looks at: what turns False is read once more before. In another namespace
// than the target's that isn't known.
func (s *subjects) readable(w *conditionWrite, c check, at time.Time) bool {
	kind, ok := s.kindOf(c)
	account := strings.Split(s.options.User, ":") // system:serviceaccount:NAMESPACE:NAME
	if !ok || len(account) != 4 || c.Object.Namespace != "" {
		return true
	}
	verb := "get"
	if c.Object.Name == "" {
		verb = "list"
	}
	asked := right{verb: verb, group: kind.Group, resource: kind.Resource, namespace: w.target.GetNamespace(), some: true}
	return s.rights.had(types.NamespacedName{Namespace: account[2], Name: account[3]}, asked, at, authorizing)
}

const (
	// flipsWithin, flipsPercent and flipsLeast: more of a registration's targets, and as many at least, don't turn from True to False in that time.
	flipsWithin, flipsPercent, flipsLeast = 5 * time.Minute, 20, 3
	// longestPause lies between two writes of what somebody else keeps changing, at most.
	longestPause = 5 * time.Minute
)

// breaker is what is known of the one of the registrations of a name.
type breaker struct {
	// turned is when targets last turned False.
	turned map[types.UID]time.Time
	// id is that of the last opening, open since when a status says that it is; zero while none does.
	id   string
	open time.Time
	// reset is when somebody last did that, by is the opening that was meant.
	reset time.Time
	by    string
}

// Note takes in what a status tells of the breaker, and who resets it.
func (s *subjects) Note(at time.Time, _ types.UID, p *Policy) {
	b := s.breakers[p.Name]
	if b == nil {
		b = &breaker{turned: map[types.UID]time.Time{}}
		s.breakers[p.Name] = b
	}
	id, _, _ := unstructured.NestedString(p.Latest.Object, "status", "breaker", "id")
	switch {
	case id == "":
		b.open = time.Time{}
	case id != b.id:
		b.id, b.open = id, at
	}
	if by := p.Latest.GetAnnotations()[resetKey]; by != "" && by == b.id && by != b.by {
		b.by, b.reset, b.open = by, at, time.Time{}
		clear(b.turned)
	}
}

// flips judges a condition that turned from True to False by the breakers of those whose checks say so. What somebody else wrote in the place of our
// False turned nothing.
func (s *subjects) flips(w *conditionWrite, deciders []decider) {
	if w.is.status() != "False" || w.mark.definite != "True" || w.mark.ours != nil && w.mark.ours.status == "False" {
		return
	}
	// A registration that was just made anew may be two, of one name.
	deciders = slices.CompactFunc(slices.SortedFunc(slices.Values(deciders), byName), func(a, b decider) bool { return byName(a, b) == 0 })
	for _, d := range deciders {
		// Where several decide, the message names each check with its registration.
		if len(deciders) == 1 || strings.Contains(w.is.text("message"), ") "+d.policy.Name+"/") {
			s.flipsOf(w, d)
		}
	}
}

func byName(a, b decider) int { return strings.Compare(a.policy.Name, b.policy.Name) }

func (s *subjects) flipsOf(w *conditionWrite, d decider) {
	b := s.breakers[d.policy.Name]
	if w.was.doubted() && w.At.Sub(b.reset) <= flipsWithin+s.options.Lag {
		return
	}
	if !b.open.IsZero() && w.At.Sub(b.open) > s.options.Lag {
		w.broke(Limits, "the manager turned it False while the breaker of %s is open", d.policy.Name)
	}
	maps.DeleteFunc(b.turned, func(_ types.UID, at time.Time) bool { return w.At.Sub(at) > flipsWithin-s.options.Lag })
	b.turned[w.target.GetUID()] = w.At
	if n := len(b.turned); n >= flipsLeast {
		if targets := s.targetsOf(w.At, d); n*100 > flipsPercent*targets {
			w.broke(Limits, "%d of %d targets of %s turned False within %s", n, targets, d.policy.Name, flipsWithin)
		}
	}
}

// targetsOf counts a registration's targets, and those that were some just before.
func (s *subjects) targetsOf(at time.Time, d decider) (n int) {
	for _, kind := range s.kinds.Targets {
		for name := range s.past[kind.gvk()] {
			key := thingKey{kind.gvk(), name}
			was, _ := s.over(at, []schema.GroupVersionKind{key.kind, namespaceKind.gvk()}, func(m time.Time) bool {
				return slices.ContainsFunc(d.specs, func(r registering) bool { return r.selects(s.asOf(key, m), s.namespaceOf(key, m)) })
			})
			if was {
				n++
			}
		}
	}
	return n
}

// left is what a write of ours left of a condition.
type left struct {
	says, status string
	at           time.Time
	// rounds is how often in a row somebody else had changed it by then. Early is when we last were too early with one.
	rounds int
	early  time.Time
}

// pause is how long it stays as somebody else wrote it: not at all the first time, and then 1 s, 2 s and so on.
func (l *left) pause() time.Duration {
	if l.rounds == 0 {
		return 0
	}
	return min(time.Second<<min(l.rounds-1, 20), longestPause)
}

// contest judges how soon a condition is put right that somebody else changed. How often that was is forgotten with the process, so that one write in a
// while may be too early; and what is written isn't what is planned, so that half of a pause is enough.
func (s *subjects) contest(w *conditionWrite) {
	before := w.mark.ours
	now := &left{says: w.is.says(), status: w.is.status(), at: w.At}
	w.mark.ours = now
	if before == nil {
		return
	}
	now.early = before.early
	if before.says == w.was.says() {
		return
	}
	now.rounds = before.rounds + 1
	pause := before.pause()
	if since := w.At.Sub(before.at); before.status == now.status && since < pause/2 {
		if w.At.Sub(before.early) < longestPause {
			w.broke(Once, "the manager put it right %s after it did so last, for the %d. time in a row; the pause is %s", since, now.rounds, pause)
		}
		now.rounds, now.early = 0, w.At
	}
}
