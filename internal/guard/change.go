package guard

import "slices"

// Change is what must be judged again.
type Change struct {
	// Kinds whose rules, or what these read, changed; sorted.
	Kinds []string
	// Targets are objects for which exceptions came, went or changed.
	Targets []Target
	// Policy: limits, pauses, precedence or declared condition types changed.
	Policy bool
}

// empty: nothing changed.
func (c Change) empty() bool { return len(c.Kinds) == 0 && len(c.Targets) == 0 && !c.Policy }

// OnChange calls back after rules, exceptions or the policy changed, with what must be judged again. The new state is in
// force by then, and no lock is held.
func (g *Guard) OnChange(notify func(Change)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notify = append(g.notify, notify)
}

// announce tells all that asked to be told.
func (g *Guard) announce(c Change) {
	if c.empty() {
		return
	}
	g.mu.Lock()
	notify := slices.Clone(g.notify)
	g.mu.Unlock()
	for _, n := range notify {
		n(c)
	}
}
