package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// undone judges records that go: those of a deleted policy must have gone in time.
func (j *judging) undone(name string, c Change) {
	if c.Before == nil || c.After == nil {
		return
	}
	for _, uid := range c.Before.Records() {
		p := j.world.Policies[uid]
		if p != nil && j.late(p, c.At) && !slices.Contains(c.After.Records(), uid) {
			j.broke(Undone, c.At, c.Version, name, fmt.Sprintf("what %s did was undone only %s after its deletion", p.Name, c.At.Sub(p.Gone)))
		}
	}
}

// overdue judges the records that are still there.
func (j *judging) overdue(now time.Time) {
	states := slices.SortedFunc(maps.Values(j.objects), func(a, b *state) int { return cmp.Compare(a.name, b.name) })
	for _, s := range states {
		for _, view := range s.views {
			if view == nil {
				continue
			}
			for _, uid := range view.Records() {
				p := j.world.Policies[uid]
				if p != nil && j.late(p, now) {
					j.broke(Undone, now, 0, s.name, fmt.Sprintf("what %s did isn't undone %s after its deletion", p.Name, now.Sub(p.Gone)))
				}
			}
		}
	}
}

// late: the policy was deleted so long ago, frozen times apart, that what it did must be undone.
func (j *judging) late(p *Policy, now time.Time) bool {
	return !p.Gone.IsZero() && now.Sub(p.Gone)-j.world.frozenFor(p.Gone, now) > j.options.UndoWithin
}
