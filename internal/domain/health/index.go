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

// location is where checks look: at an object of a name, or at all of a namespace ("" for all namespaces) that a selector takes.
type location struct {
	kind unique.Handle[schema.GroupVersionKind]
	key  types.NamespacedName
}

func locationOf(kind schema.GroupVersionKind, key types.NamespacedName) location {
	return location{unique.Make(kind), key}
}

// watchedRef is what one check looks at, by its location.
type watchedRef struct {
	location
	// selector of the objects; nil for one of a name.
	selector labels.Selector
}

func (s watchedRef) same(other watchedRef) bool {
	if s.location != other.location || s.selector == nil || other.selector == nil {
		return s.location == other.location && s.selector == nil && other.selector == nil
	}
	return s.selector.String() == other.selector.String()
}

// watcher is who looks at a location, through a selector or at an object of a name.
type watcher[T comparable] struct {
	who      T
	selector labels.Selector
}

// Index knows who looks at an object: targets, or single checks of theirs. It is safe for concurrent use, and the zero value is empty.
// Most locations have one watcher, and a target has a few refs, so that slices take a quarter of what sets would.
type Index[T comparable] struct {
	mu       sync.Mutex
	watchers map[location][]watcher[T] // needs mu
	refs     map[T][]watchedRef        // needs mu; the reverse
}

// SetRefs replaces what somebody looks at.
func (x *Index[T]) SetRefs(who T, refs []Ref) {
	watched := make([]watchedRef, len(refs))
	for i, ref := range refs {
		watched[i].location = locationOf(ref.Kind, ref.Key())
		if ref.Name == "" {
			watched[i].selector = ref.Selector
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.EqualFunc(watched, x.refs[who], watchedRef.same) {
		return
	}
	for _, s := range x.refs[who] {
		x.watchers[s.location] = slices.DeleteFunc(x.watchers[s.location], func(f watcher[T]) bool { return f.who == who })
		if len(x.watchers[s.location]) == 0 {
			delete(x.watchers, s.location)
		}
	}
	if delete(x.refs, who); len(refs) == 0 {
		return
	}
	if x.refs == nil {
		x.refs, x.watchers = map[T][]watchedRef{}, map[location][]watcher[T]{}
	}
	for _, s := range watched {
		x.watchers[s.location] = append(x.watchers[s.location], watcher[T]{who, s.selector})
	}
	x.refs[who] = watched
}

// Affected are those who look at an object that has these labels, or had them.
func (x *Index[T]) Affected(kind schema.GroupVersionKind, key types.NamespacedName, either ...labels.Set) sets.Set[T] {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.New[T]()
	for _, f := range x.watchers[locationOf(kind, key)] {
		found.Insert(f.who)
	}
	for _, namespace := range sets.New(key.Namespace, "").UnsortedList() {
		for _, f := range x.watchers[locationOf(kind, types.NamespacedName{Namespace: namespace})] {
			if slices.ContainsFunc(either, func(l labels.Set) bool { return f.selector != nil && f.selector.Matches(l) }) {
				found.Insert(f.who)
			}
		}
	}
	return found
}

// WatchersOfKind are those who look at objects of a kind.
func (x *Index[T]) WatchersOfKind(kind schema.GroupVersionKind) []T {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.New[T]()
	for p, followers := range x.watchers {
		if p.kind.Value() != kind {
			continue
		}
		for _, f := range followers {
			found.Insert(f.who)
		}
	}
	return found.UnsortedList()
}
