package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Rejections has which rules refuse which stored policies, for the Guardrails' statuses. It is safe for concurrent use.
type Rejections struct {
	mu       sync.Mutex
	by       map[string][]string // needs mu: rules by policy
	onChange func(owner string)  // needs mu
}

// OnChange calls f for each owner of rules whose rejections changed.
func (r *Rejections) OnChange(f func(owner string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onChange = f
}

// Set records which rules refuse a policy, given as Kind/name or Kind/namespace/name; none for one that is deleted or
// admitted.
func (r *Rejections) Set(policy string, rules []string) {
	r.mu.Lock()
	was := r.by[policy]
	if r.by == nil {
		r.by = map[string][]string{}
	}
	if r.by[policy] = rules; len(rules) == 0 {
		delete(r.by, policy)
	}
	onChange := r.onChange
	r.mu.Unlock()
	if onChange == nil || slices.Equal(was, rules) {
		return
	}
	for _, owner := range owners(was, rules) {
		onChange(owner)
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

// ownerOf a rule is the part before its slash: a Guardrail's name, or a kind in lower case.
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
