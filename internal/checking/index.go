package checking

import (
	"slices"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// Target is an object that gets conditions.
type Target struct {
	// Kind in whatever version: registrations may name several, and its conditions are the same.
	Kind schema.GroupKind
	Key  types.NamespacedName
}

// place is where checks look: at an object of a name, or at all of a namespace ("" for all namespaces) that a selector takes.
type place struct {
	kind unique.Handle[schema.GroupVersionKind]
	key  types.NamespacedName
}

func placeOf(kind schema.GroupVersionKind, key types.NamespacedName) place {
	return place{unique.Make(kind), key}
}

// sight is what one check looks at in a place.
type sight struct {
	place
	// selector of the objects; nil for one of a name.
	selector labels.Selector
}

func (s sight) same(other sight) bool {
	if s.place != other.place || s.selector == nil || other.selector == nil {
		return s.place == other.place && s.selector == nil && other.selector == nil
	}
	return s.selector.String() == other.selector.String()
}

// follower is a target with a check that looks at a place, through a selector or at an object of a name.
type follower struct {
	target   Target
	selector labels.Selector
}

// index knows which targets' checks look at an object. It is safe for concurrent use. Most places have one follower, and a target
// has a few sights, so that slices take a quarter of what sets would.
type index struct {
	mu        sync.Mutex
	followers map[place][]follower // needs mu
	of        map[Target][]sight   // needs mu; the reverse
	// clusters are the kinds whose objects have no namespace, of those that are watched; needs mu.
	clusters sets.Set[schema.GroupVersionKind]
}

// clusterScoped takes in that the objects of a kind have no namespace, whichever a check names: news of them come without.
func (x *index) clusterScoped(kind schema.GroupVersionKind) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.clusters.Has(kind) {
		return
	}
	if x.clusters == nil {
		x.clusters = sets.New[schema.GroupVersionKind]()
	}
	x.clusters.Insert(kind)
	for from, followers := range x.followers {
		if to := x.place(from); to != from {
			delete(x.followers, from)
			x.followers[to] = append(x.followers[to], followers...)
		}
	}
	for _, sights := range x.of {
		for i := range sights {
			sights[i].place = x.place(sights[i].place)
		}
	}
}

// place needs x.mu.
func (x *index) place(p place) place {
	if x.clusters.Has(p.kind.Value()) {
		p.key.Namespace = ""
	}
	return p
}

// placed is where the objects of a ref are: those of a cluster-scoped kind aren't in the namespace of who looks at them.
func (x *index) placed(ref registration.Ref) registration.Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.clusters.Has(ref.Kind) {
		ref.Namespace = ""
	}
	return ref
}

// follow replaces what a target's checks look at.
func (x *index) follow(target Target, refs []registration.Ref) {
	sights := make([]sight, len(refs))
	for i, ref := range refs {
		sights[i].place = placeOf(ref.Kind, ref.Key())
		if ref.Name == "" {
			sights[i].selector = ref.Selector
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range sights {
		sights[i].place = x.place(sights[i].place)
	}
	if slices.EqualFunc(sights, x.of[target], sight.same) {
		return
	}
	for _, s := range x.of[target] {
		x.followers[s.place] = slices.DeleteFunc(x.followers[s.place], func(f follower) bool { return f.target == target })
		if len(x.followers[s.place]) == 0 {
			delete(x.followers, s.place)
		}
	}
	if delete(x.of, target); len(refs) == 0 {
		return
	}
	if x.of == nil {
		x.of, x.followers = map[Target][]sight{}, map[place][]follower{}
	}
	for _, s := range sights {
		x.followers[s.place] = append(x.followers[s.place], follower{target, s.selector})
	}
	x.of[target] = sights
}

// affected are the targets whose checks look at an object that has these labels, or had them.
func (x *index) affected(kind schema.GroupVersionKind, key types.NamespacedName, either ...labels.Set) sets.Set[Target] {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.New[Target]()
	for _, f := range x.followers[placeOf(kind, key)] {
		found.Insert(f.target)
	}
	for _, namespace := range sets.New(key.Namespace, "").UnsortedList() {
		for _, f := range x.followers[placeOf(kind, types.NamespacedName{Namespace: namespace})] {
			if slices.ContainsFunc(either, func(l labels.Set) bool { return f.selector.Matches(l) }) {
				found.Insert(f.target)
			}
		}
	}
	return found
}

// following are the targets whose checks look at objects of a kind.
func (x *index) following(kind schema.GroupVersionKind) []Target {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.New[Target]()
	for p, followers := range x.followers {
		if p.kind.Value() != kind {
			continue
		}
		for _, f := range followers {
			found.Insert(f.target)
		}
	}
	return found.UnsortedList()
}
