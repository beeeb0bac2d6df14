package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// nodes follows all nodes through a replay.
type nodes struct {
	options Options
	now     map[types.UID]*node
	reasons map[types.UID]*reasons
	acted   ledger
	evicted map[string]stamp // the last node of a zone that began to evict
	// evicting is since when nodes evict, and gone are those that were deleted: while they evicted, or matched, they count until the pace
	// has passed.
	evicting map[types.UID]stamp
	gone     []gone
	// evictions are when a set of this name began to evict from a node of that name, by when it had tainted it.
	evictions map[[2]string]map[time.Time]time.Time
	// counted is until when nodes were counted that aren't any more.
	counted map[types.UID]time.Time
	// trusted are keys in records that were there before anything was judged; their sets may be long gone.
	trusted map[string]bool
}

// gone is a node that was deleted.
type gone struct {
	*node
	at time.Time
}

// reasons are what happened to one node that can give reason for a taint.
type reasons struct {
	known   stamp
	members map[corev1.NodeConditionType][]stamp
	said    map[corev1.NodeConditionType]map[corev1.ConditionStatus]time.Time // when a condition was last so
	keys    map[string][]stamp                                                // someone else changed a taint with this key
	node    []stamp                                                           // someone else changed labels or record
}

func newNodes(o Options) *nodes {
	return &nodes{
		options: o, now: map[types.UID]*node{}, reasons: map[types.UID]*reasons{},
		acted: ledger{lag: o.Lag, used: map[string]uint64{}}, evicted: map[string]stamp{}, evicting: map[types.UID]stamp{}, counted: map[types.UID]time.Time{}, evictions: map[[2]string]map[time.Time]time.Time{}, trusted: map[string]bool{},
	}
}

func (s *nodes) View(object []byte) (View, error) { return parseNode(object) }

// OnlyOurs: a policy lets nobody but the manager change the record.
func (s *nodes) OnlyOurs(before, after View) bool {
	return before.(*node).recordText != after.(*node).recordText
}

func (s *nodes) Read(w *World, c Change) Finding {
	before, _ := c.Before.(*node)
	after, _ := c.After.(*node)
	if after == nil {
		delete(s.now, before.uid)
		s.gone = append(s.gone, gone{before, c.At})
		return Finding{}
	}
	if before == nil {
		before = &node{}
		for _, claim := range after.record.Taints {
			s.trusted[claim.Key] = true
		}
	}
	var f Finding
	if c.Ours {
		f = s.ours(w, c, before, after)
	}
	s.now[after.uid] = after
	if before.counted {
		s.counted[after.uid] = c.At
	}
	if c.Ours {
		f.Broken = append(f.Broken, s.limits(w, c, before, after)...)
	}
	s.note(c, before, after)
	return f
}

// ours judges a write of the manager by itself.
func (s *nodes) ours(w *World, c Change, before, after *node) Finding {
	switch {
	case c.Subresource != "":
		return Finding{NotMine: true}
	case after.recordErr != nil:
		return broken(OwnOnly, "the record that the manager wrote can't be read: %v", after.recordErr)
	case sameTaints(before.taints, after.taints) && before.recordText == after.recordText && sameRest(before, after):
		return broken(Once, "a write by the manager that left taints and record as they were")
	}
	f := Finding{Broken: append(s.ownership(w, before, after), s.recoveries(w, c, before, after)...)}
	if !sameRest(before, after) {
		f.Broken = append(f.Broken, Broken{OwnOnly, "the manager changed more than taints and record"})
	}
	for _, claim := range asked(before, after) {
		what := fmt.Sprintf("taint %s:%s for %s", claim.Key, claim.Effect, claim.Name)
		act := fmt.Sprintf("%s/%d/%s/%s:%s", claim.Set, claim.Generation, after.uid, claim.Key, claim.Effect)
		if harms(claim, before, after) {
			f.Broken = append(f.Broken, before.leftAlone(claim, c)...)
			f.Acts = append(f.Acts, Act{Policy: claim.Set, Generation: claim.Generation, What: what})
		}
		if !s.acted.use(act, s.reasonsFor(w, claim, after.uid), stamp{c.Version, c.At}) {
			f.Broken = append(f.Broken, Broken{Once, fmt.Sprintf("%s at generation %d was done before, and nothing happened since", what, claim.Generation)})
		}
	}
	return f
}

// leftAlone: nothing new comes to a node that people ask to leave alone.
func (n *node) leftAlone(claim claim, c Change) []Broken {
	if !n.held || !n.heldUntil.IsZero() && !c.At.Before(n.heldUntil) {
		return nil
	}
	return []Broken{{OwnOnly, fmt.Sprintf("the manager set %s:%s on a node that people ask to leave alone", claim.Key, claim.Effect)}}
}

func broken(invariant Invariant, format string, args ...any) Finding {
	return Finding{Broken: []Broken{{invariant, fmt.Sprintf(format, args...)}}}
}

// ownership: what went was ours, what came is ours now.
func (s *nodes) ownership(w *World, before, after *node) []Broken {
	var found []Broken
	own := func(format string, args ...any) {
		found = append(found, Broken{OwnOnly, fmt.Sprintf(format, args...)})
	}
	for _, t := range without(before.taints, after.taints) {
		switch {
		case reserved(t.Key):
			own("the manager removed or changed %s, whose key is reserved", describe(t))
		case !before.owns(t):
			own("the manager removed or changed %s, which the record didn't own", describe(t))
		case !s.declared(w, t.Key):
			own("the manager removed or changed %s, whose key no ConditionSet ever declared", describe(t))
		}
	}
	for _, t := range without(after.taints, before.taints) {
		switch {
		case reserved(t.Key):
			own("the manager added %s, whose key is reserved", describe(t))
		case !after.owns(t):
			own("the manager added %s without recording it", describe(t))
		}
	}
	for _, claim := range asked(before, after) {
		effect := after.record.effect(claim.Key)
		if !slices.ContainsFunc(after.taints, func(t corev1.Taint) bool { return t.Key == claim.Key && t.Effect == effect }) {
			own("the manager recorded %s:%s, which the node doesn't have", claim.Key, effect)
		}
	}
	return found
}

// declared says whether some ConditionSet ever named the key.
func (s *nodes) declared(w *World, key string) bool {
	if s.trusted[key] {
		return true
	}
	for _, p := range w.Policies {
		keys, _, _ := unstructured.NestedStringSlice(p.Latest.Object, "status", "taintKeys")
		if slices.Contains(keys, key) {
			return true
		}
		for _, spec := range p.Specs {
			if declared, _, _ := unstructured.NestedString(spec.Object.Object, "spec", "taintKey"); declared == key {
				return true
			}
		}
	}
	return false
}

// asked are the claims that a write added or raised, or whose taint it put back.
func asked(before, after *node) []claim {
	claims := slices.DeleteFunc(slices.Clone(after.record.Taints), func(c claim) bool {
		raised := rank(c.Effect) > rank(before.record.of(c.Set, c.Key).Effect)
		return !raised && !harms(c, before, after)
	})
	slices.SortFunc(claims, byKey)
	return claims
}

// harms: the node has a taint that it didn't have, and the claim asks for it; a lowered effect is no harm.
func harms(c claim, before, after *node) bool {
	highest := corev1.TaintEffect("")
	for _, t := range before.owned() {
		if t.Key == c.Key && rank(t.Effect) > rank(highest) {
			highest = t.Effect
		}
	}
	return rank(c.Effect) > rank(highest) && slices.ContainsFunc(after.taints, func(t corev1.Taint) bool {
		return t.Key == c.Key && t.Effect == c.Effect
	})
}

// note keeps what of a change can give reason for an act.
func (s *nodes) note(c Change, before, after *node) {
	at := stamp{c.Version, c.At}
	r := s.reasons[after.uid]
	if r == nil {
		r = &reasons{known: at, members: map[corev1.NodeConditionType][]stamp{}, keys: map[string][]stamp{},
			said: map[corev1.NodeConditionType]map[corev1.ConditionStatus]time.Time{}}
		s.reasons[after.uid] = r
		return
	}
	for member, status := range before.statuses {
		if r.said[member] == nil {
			r.said[member] = map[corev1.ConditionStatus]time.Time{}
		}
		r.said[member][status] = c.At
	}
	for member := range union(before.members, after.members) {
		if before.members[member] != after.members[member] {
			r.members[member] = append(r.members[member], at)
		}
	}
	if c.Ours {
		return
	}
	if before.recordText != after.recordText || !maps.Equal(before.labels, after.labels) {
		r.node = append(r.node, at)
	}
	for _, t := range append(without(before.taints, after.taints), without(after.taints, before.taints)...) {
		r.keys[t.Key] = append(r.keys[t.Key], at)
	}
}

func union(a, b map[corev1.NodeConditionType]string) map[corev1.NodeConditionType]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[corev1.NodeConditionType]string{}
	}
	maps.Copy(all, b)
	return all
}

// reasonsFor gives, in order, what happened that concerns a claim.
func (s *nodes) reasonsFor(w *World, c claim, uid types.UID) []stamp {
	r := s.reasons[uid]
	if r == nil {
		return nil
	}
	found := append([]stamp{r.known}, r.node...)
	found = append(found, r.keys[c.Key]...)
	if p := w.Policies[c.Set]; p != nil {
		if spec, ok := p.Spec(c.Generation); ok {
			conditions, _, _ := unstructured.NestedMap(spec.Object.Object, "spec", "conditions")
			for member := range conditions {
				found = append(found, r.members[corev1.NodeConditionType(member)]...)
			}
		}
	}
	slices.SortFunc(found, byVersion)
	return found
}
