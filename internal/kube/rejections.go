package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Rejections knows which stored policies are refused by which rules, so that a Guardrail's status can tell. It is safe for
// concurrent use.
type Rejections struct {
	mu   sync.Mutex
	by   map[string][]string // needs mu: rules by policy
	tell func(owner string)  // needs mu
}

// Follow tells f of each owner of rules whose rejections changed.
func (r *Rejections) Follow(f func(owner string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = f
}

// Note takes in which rules refuse a policy, given as Kind/name or Kind/namespace/name; none for one that is gone or that
// they admit.
func (r *Rejections) Note(policy string, rules []string) {
	r.mu.Lock()
	was := r.by[policy]
	if r.by == nil {
		r.by = map[string][]string{}
	}
	if r.by[policy] = rules; len(rules) == 0 {
		delete(r.by, policy)
	}
	tell := r.tell
	r.mu.Unlock()
	if tell == nil || slices.Equal(was, rules) {
		return
	}
	for _, owner := range owners(was, rules) {
		tell(owner)
	}
}

// Of gives the policies that rules of an owner refuse, sorted.
func (r *Rejections) Of(owner string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for policy, rules := range r.by {
			if slices.ContainsFunc(rules, func(rule string) bool { return ownerOf(rule) == owner }) && !yield(policy) {
				return
			}
		}
	})
}

// ownerOf a rule is what stands before its slash: a Guardrail's name, or a kind in lower case.
func ownerOf(rule string) string {
	owner, _, _ := strings.Cut(rule, "/")
	return owner
}

func owners(lists ...[]string) []string {
	found := map[string]struct{}{}
	for _, rules := range lists {
		for _, rule := range rules {
			found[ownerOf(rule)] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
