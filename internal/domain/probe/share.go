package probe

import "fmt"

// tally counts members: those that are probed, that are probed and in force, of which something is scaled down, and of which
// that isn't known.
type tally struct{ probed, acting, down, unread int }

func probed(t *tally) *int { return &t.probed }
func acting(t *tally) *int { return &t.acting }
func isDown(t *tally) *int { return &t.down }
func unread(t *tally) *int { return &t.unread }

// mark keeps a member's flag, and how many have it. It needs f.mu.
func (f *Fleet) mark(m *member, flag *bool, count func(*tally) *int, holds bool) {
	if *flag == holds {
		return
	}
	*flag = holds
	by := 1
	if !holds {
		by = -1
	}
	*count(&f.all) += by
	if !m.tenant {
		return
	}
	*count(&f.tenants) += by
	own := f.tenant[m.namespace]
	if own == nil {
		own = &tally{}
		f.tenant[m.namespace] = own
	}
	if *count(own) += by; *own == (tally{}) {
		delete(f.tenant, m.namespace)
	}
}

// full says why a member that isn't down must not be scaled down, "" when it may. It needs f.mu.
//
// The cap is shared: whoever runs a probed server can make it fail, and with many targets would otherwise use up the places of
// all. Tenants leave those in Autohealer's own namespace their part, by their numbers, and a tenant leaves other tenants
// theirs, but each has one place.
func (f *Fleet) full(m *member) string {
	most, limit := f.limits.ScaledDownTargets(f.all.acting), f.limits.MaxScaledDownTargets
	if f.all.taken(m) >= most {
		return f.all.says(m, fmt.Sprintf("%d of %d targets are scaled down, and maxScaledDownTargets %s allows %d", f.all.down, f.all.acting, limit, most))
	}
	if !m.tenant {
		return ""
	}
	own := f.tenant[m.namespace]
	if own == nil {
		own = &tally{}
	}
	if share := max(1, part(most, own.acting, f.all.acting)); own.taken(m) >= share {
		return own.says(m, fmt.Sprintf("%d of %d targets of namespace %s are scaled down, and its share of maxScaledDownTargets %s is %d", own.down, own.acting, m.namespace, limit, share))
	}
	if share := max(1, most-part(most, f.all.acting-f.tenants.acting, f.all.acting)); f.tenants.taken(m) >= share {
		return f.tenants.says(m, fmt.Sprintf("%d of %d targets of tenants are scaled down, and maxScaledDownTargets %s allows them %d", f.tenants.down, f.tenants.acting, limit, share))
	}
	return ""
}

// part of a whole that some of all have, rounded down.
func part(whole, some, all int) int {
	if all == 0 {
		return 0
	}
	return whole * some / all
}

// taken are the places that others than the member have, or may have.
func (t *tally) taken(m *member) int { return t.down + t.unreadBeside(m) }

func (t *tally) unreadBeside(m *member) int {
	if m.unread {
		return t.unread - 1
	}
	return t.unread
}

func (t *tally) says(m *member, message string) string {
	if n := t.unreadBeside(m); n > 0 {
		return fmt.Sprintf("%s; of %d it isn't known yet", message, n)
	}
	return message
}
