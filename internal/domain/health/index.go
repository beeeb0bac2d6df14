package health

import (
	"slices"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Ref is what a check looks at.
type Ref struct {
	Kind      schema.GroupVersionKind
	Namespace string
	// Name of the object; "" when Selector selects several.
	Name     string
	Selector labels.Selector
}

// Key is the name of the one object.
func (r Ref) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
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

// follower is who looks at a place, through a selector or at an object of a name.
type follower[T comparable] struct {
	who      T
	selector labels.Selector
}

// Index knows who looks at an object: targets, or single checks of theirs. It is safe for concurrent use, and the zero value is empty.
// Most places have one follower, and a target has a few sights, so that slices take a quarter of what sets would.
type Index[T comparable] struct {
	mu        sync.Mutex
	followers map[place][]follower[T] // needs mu
	of        map[T][]sight           // needs mu; the reverse
	// clusters are the kinds whose objects have no namespace, of those that are watched; needs mu.
	clusters sets.Set[schema.GroupVersionKind]
}

// ClusterScoped takes in that the objects of a kind have no namespace, whichever a check names: news of them come without.
func (x *Index[T]) ClusterScoped(kind schema.GroupVersionKind) {
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
func (x *Index[T]) place(p place) place {
	if x.clusters.Has(p.kind.Value()) {
		p.key.Namespace = ""
	}
	return p
}

// Placed is where the objects of a ref are: those of a cluster-scoped kind aren't in the namespace of who looks at them.
func (x *Index[T]) Placed(ref Ref) Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.clusters.Has(ref.Kind) {
		ref.Namespace = ""
	}
	return ref
}

// Follow replaces what somebody looks at.
func (x *Index[T]) Follow(who T, refs []Ref) {
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
	if slices.EqualFunc(sights, x.of[who], sight.same) {
		return
	}
	for _, s := range x.of[who] {
		x.followers[s.place] = slices.DeleteFunc(x.followers[s.place], func(f follower[T]) bool { return f.who == who })
		if len(x.followers[s.place]) == 0 {
			delete(x.followers, s.place)
		}
	}
	if delete(x.of, who); len(refs) == 0 {
		return
	}
	if x.of == nil {
		x.of, x.followers = map[T][]sight{}, map[place][]follower[T]{}
	}
	for _, s := range sights {
		x.followers[s.place] = append(x.followers[s.place], follower[T]{who, s.selector})
	}
	x.of[who] = sights
}

// Affected are those who look at an object that has these labels, or had them.
func (x *Index[T]) Affected(kind schema.GroupVersionKind, key types.NamespacedName, either ...labels.Set) sets.Set[T] {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.New[T]()
	for _, f := range x.followers[placeOf(kind, key)] {
		found.Insert(f.who)
	}
	for _, namespace := range sets.New(key.Namespace, "").UnsortedList() {
		for _, f := range x.followers[placeOf(kind, types.NamespacedName{Namespace: namespace})] {
			if slices.ContainsFunc(either, func(l labels.Set) bool { return f.selector != nil && f.selector.Matches(l) }) {
				found.Insert(f.who)
			}
		}
	}
	return found
}

// Following are those who look at objects of a kind.
func (x *Index[T]) Following(kind schema.GroupVersionKind) []T {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.New[T]()
	for p, followers := range x.followers {
		if p.kind.Value() != kind {
			continue
		}
		for _, f := range followers {
			found.Insert(f.who)
		}
	}
	return found.UnsortedList()
}
