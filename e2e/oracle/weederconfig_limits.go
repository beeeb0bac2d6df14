package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// place is a pod's in its lineage: after is the deletion of the pod that it replaced, nil when it replaced none of ours.
type place struct {
	pod   *pod
	born  time.Time
	after *deletion
}

// settle gives a new pod its place: after the workload's latest deletion that no other pod came after.
func (s *pods) settle(p *pod, born time.Time) {
	here := &place{pod: p, born: born}
	if vacant := s.vacant[p.workload]; len(vacant) > 0 {
		here.after, s.vacant[p.workload] = vacant[len(vacant)-1], vacant[:len(vacant)-1]
	}
	s.places[p.uid] = here
}

// vacate takes a pod that the manager deletes from its place, for the next. Of pods that were created at about the same time the manager
// may have seen another as the replacement: it may take any of their places, which that one then has instead.
func (s *pods) vacate(d *deletion) (reason string) {
	own := s.places[d.pod.uid]
	reason = s.tooSoon(d, own.after)
	for _, uid := range slices.Sorted(maps.Keys(s.places)) {
		other := s.places[uid]
		apart := other.born.Sub(own.born).Abs()
		if reason != "" && other.pod.workload == d.pod.workload && apart <= s.options.Lag && s.tooSoon(d, other.after) == "" {
			own.after, other.after, reason = other.after, own.after, ""
		}
	}
	if d.after = own.after; s.ranWell[d.pod.uid] {
		d.after = nil
	}
	delete(s.places, d.pod.uid)
	s.vacant[d.pod.workload] = append(s.vacant[d.pod.workload], d)
	return reason
}

// tooSoon says why a pod that came after that deletion may not be deleted; "" when it may. One that has run well since may.
func (s *pods) tooSoon(d, after *deletion) string {
	if after == nil || s.ranWell[d.pod.uid] || d.at.Sub(after.at) >= time.Hour-s.options.Lag {
		return ""
	}
	row := 1
	for o := after; o != nil && d.at.Sub(o.at) < time.Hour-s.options.Lag; o = o.after {
		row++
	}
	if most := 1 + d.spec.MaxRepeats; row > most {
		return fmt.Sprintf("%d pods of %s were deleted within an hour, each the replacement of the one before; %d are allowed", row, d.pod.workload, most)
	}
	if gap := d.at.Sub(after.at); gap < d.spec.Cooldown.Duration-s.options.Lag {
		return fmt.Sprintf("a replacement in %s was deleted %s after the pod that it replaced; the cooldown is %s", d.pod.workload, gap, d.spec.Cooldown.Duration)
	}
	return ""
}

// limits judges the budgets of the config, and the limit over all configs.
func (s *pods) limits(w *World, d *deletion) []Broken {
	var found []Broken
	exceeded := func(is bool, format string, args ...any) {
		if is {
			found = append(found, Broken{Limits, fmt.Sprintf(format, args...)})
		}
	}
	inWindow, inMinute, most := 0, 0, w.deletable(d.at, s.options.Lag)
	for _, o := range s.done {
		if o.uid == d.uid && o.service == d.service && o.recovery == d.recovery && !o.former {
			inWindow++
		}
		if d.at.Sub(o.at) < time.Minute-s.options.Lag {
			inMinute++
		}
	}
	exceeded(inWindow > d.spec.MaxDeletions, "%d pods were deleted since Service %s recovered; %d are allowed", inWindow, d.service, d.spec.MaxDeletions)
	reason := s.vacate(d)
	exceeded(reason != "", "%s", reason)
	exceeded(inMinute > most, "%d pods were deleted within a minute; %d are allowed", inMinute, most)
	return found
}
