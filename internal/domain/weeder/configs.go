package weeder

import (
	"cmp"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// configState is a config with what it watches and did.
type configState struct {
	*Config
	state lifecycle.State
	// seen is each watched Service's state when it was last judged; one that wasn't seen yet is missing.
	seen map[types.NamespacedName]lastReadiness
	// windows are the open ones, by Service.
	windows map[types.NamespacedName]*window
	// held are the pods that it holds back: it is asked for them while thousands crash-loop that are none of its business.
	held map[*podState]struct{}
	// inherited is what a former process left open.
	inherited inheritedWindows
	totals
}

// scope are the configs that hold in a namespace, or in those that they choose by a selector, with their claims on pods.
type scope struct {
	configs map[types.UID]*configState
	claims  claims
}

// everywhere is the scope of configs that choose their namespaces by a selector.
const everywhere = ""

func scopeOf(c *Config) string {
	if c.Namespaces != nil {
		return everywhere
	}
	return c.Namespace
}

// ObserveConfig takes in a config and what it may do now, and gives the pods to decide on. A Service that it newly names is
// seen for the first time.
func (s *State) ObserveConfig(c *Config, state lifecycle.State, at timing.Moment) (due []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cs := s.configs[c.UID]
	otherPolicy := cs != nil && cs.AllReady != c.AllReady
	if cs != nil && cs.Generation == c.Generation && cs.state == state {
		cs.Config = c // its status may be newer
		s.inherit(cs, false, at)
		return nil
	}
	first := cs == nil
	if first {
		cs = &configState{
			seen: map[types.NamespacedName]lastReadiness{}, windows: map[types.NamespacedName]*window{}, held: map[*podState]struct{}{},
			inherited: inheritedWindows{byService: map[types.NamespacedName]Window{}}, totals: totals{skipped: map[Reason]int64{}},
		}
		s.configs[c.UID] = cs
	} else {
		s.removeFromScope(cs)
		for _, w := range cs.windows {
			s.unhold(w) // all of them are decided on again
		}
	}
	cs.Config, cs.state = c, state
	s.addToScope(cs)
	s.inherit(cs, first, at)
	s.endUnwatched(cs)
	if otherPolicy { // that a Service is Ready by it is no recovery
		for key := range cs.seen {
			s.recordReadiness(cs, key, at)
		}
	}
	s.markDirty(cs)
	s.evaluateAll(cs, at)
	for _, w := range cs.windows {
		due = append(due, s.selectedPods(w, at)...)
	}
	return sortedKeys(due)
}

// addToScope files a config by its name and by where it holds.
func (s *State) addToScope(cs *configState) {
	s.named[cs.Key()] = cs
	in, known := s.scopes[scopeOf(cs.Config)]
	if !known {
		in = scope{map[types.UID]*configState{}, claims{}}
		s.scopes[scopeOf(cs.Config)] = in
	}
	in.configs[cs.UID] = cs
	in.claims.add(cs)
}

// removeFromScope takes a config out of all that it is filed by.
func (s *State) removeFromScope(cs *configState) {
	if s.named[cs.Key()] == cs {
		delete(s.named, cs.Key())
	}
	in := s.scopes[scopeOf(cs.Config)]
	in.claims.remove(cs)
	if delete(in.configs, cs.UID); len(in.configs) == 0 {
		delete(s.scopes, scopeOf(cs.Config))
	}
}

// appliesTo says whether a config is about a namespace.
func (s *State) appliesTo(cs *configState, namespace string) bool {
	if cs.Namespaces == nil {
		return namespace == cs.Namespace
	}
	of, known := s.namespaces[namespace]
	return known && cs.Namespaces.Matches(of)
}

// applyingTo are the configs that are about a namespace.
func (s *State) applyingTo(namespace string) iter.Seq[*configState] {
	return func(yield func(*configState) bool) {
		for _, in := range []string{namespace, everywhere} {
			for _, cs := range s.scopes[in].configs {
				if s.appliesTo(cs, namespace) && !yield(cs) {
					return
				}
			}
		}
	}
}

// watching are the configs that watch a Service.
func (s *State) watching(service types.NamespacedName) iter.Seq[*configState] {
	return func(yield func(*configState) bool) {
		for cs := range s.applyingTo(service.Namespace) {
			if _, names := cs.Services[service.Name]; names && !yield(cs) {
				return
			}
		}
	}
}

// namespacesOf are the namespaces that a config holds in.
func (s *State) namespacesOf(cs *configState) (namespaces []string) {
	if cs.Namespaces == nil {
		return []string{cs.Namespace}
	}
	for name, of := range s.namespaces {
		if cs.Namespaces.Matches(of) {
			namespaces = append(namespaces, name)
		}
	}
	return namespaces
}

// endUnwatched ends what a config no longer watches, and fits the windows that stay to its watchDuration. What a window spent counts
// if the config watches its Service again before it would have ended.
func (s *State) endUnwatched(cs *configState) {
	watches := func(key types.NamespacedName) bool {
		_, named := cs.Services[key.Name]
		return named && s.appliesTo(cs, key.Namespace)
	}
	for key := range cs.seen {
		if !watches(key) {
			s.forgetReadiness(cs, key)
		}
	}
	for _, w := range cs.windows {
		if watches(w.key()) {
			w.Ends = w.Opened.Add(cs.WatchDuration)
			continue
		}
		cs.inherited.byService[w.key()] = w.Window
		s.close(w)
	}
}

// ForgetConfig removes a config that is gone. What it deleted still counts for the pods' workloads.
func (s *State) ForgetConfig(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cs := s.configs[uid]
	if cs == nil {
		return
	}
	for _, w := range cs.windows {
		s.close(w)
	}
	for key := range cs.seen {
		s.forgetReadiness(cs, key)
	}
	s.removeFromScope(cs)
	delete(s.configs, uid)
	delete(s.dirty, uid)
}

func compareWindows(a, b *window) int {
	return cmp.Or(a.of.Created.Compare(b.of.Created), compareKeys(a.of.Key(), b.of.Key()), strings.Compare(a.Service, b.Service))
}
