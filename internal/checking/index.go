package checking

import (
	"sync"

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
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

// index knows which targets' checks look at an object. It is safe for concurrent use.
type index struct {
	mu      sync.Mutex
	targets map[place]map[Target][]labels.Selector // needs mu; no selectors for objects of a name
	of      map[Target]sets.Set[place]             // needs mu; the reverse
}

// follow replaces what a target's checks look at.
func (x *index) follow(target Target, refs []registration.Ref) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p := range x.of[target] {
		if delete(x.targets[p], target); len(x.targets[p]) == 0 {
			delete(x.targets, p)
		}
	}
	if delete(x.of, target); len(refs) == 0 {
		return
	}
	if x.of == nil {
		x.of, x.targets = map[Target]sets.Set[place]{}, map[place]map[Target][]labels.Selector{}
	}
	places := sets.New[place]()
	for _, ref := range refs {
		p := place{ref.Kind, ref.Key()}
		if places.Insert(p); x.targets[p] == nil {
			x.targets[p] = map[Target][]labels.Selector{}
		}
		selectors := x.targets[p][target]
		if ref.Name == "" {
			selectors = append(selectors, ref.Selector)
		}
		x.targets[p][target] = selectors
	}
	x.of[target] = places
}

// affected are the targets whose checks look at an object that has these labels, or had them.
func (x *index) affected(kind schema.GroupVersionKind, key types.NamespacedName, either ...labels.Set) sets.Set[Target] {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := sets.KeySet(x.targets[place{kind, key}])
	for _, namespace := range sets.New(key.Namespace, "").UnsortedList() {
		for target, selectors := range x.targets[place{kind, types.NamespacedName{Namespace: namespace}}] {
			if anyMatches(selectors, either) {
				found.Insert(target)
			}
		}
	}
	return found
}

func anyMatches(selectors []labels.Selector, either []labels.Set) bool {
	for _, s := range selectors {
		for _, l := range either {
			if s.Matches(l) {
				return true
			}
		}
	}
	return false
}
