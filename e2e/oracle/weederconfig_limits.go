package oracle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// spent is what was deleted before that counts against a deletion, itself included.
type spent struct {
	inWindow, inMinute, repeats int
	last                        time.Time // of the workload
}

func (s *pods) spent(d *deletion) (before spent) {
	for _, o := range s.done {
		if o.uid == d.uid && o.service == d.service && o.recovery == d.recovery && !o.former {
			before.inWindow++
		}
		if d.at.Sub(o.at) < time.Minute-s.options.Lag {
			before.inMinute++
		}
		if o.pod.workload != d.pod.workload || o.pod.uid == d.pod.uid || d.at.Sub(o.at) >= time.Hour-s.options.Lag {
			continue
		}
		d.repeat = d.repeat || s.replaces(d.pod.uid, o)
		before.last = o.at
		if o.repeat {
			before.repeats++
		}
	}
	return before
}

// replaces says whether a pod came after a deletion in its workload, and hasn't run well since.
func (s *pods) replaces(pod types.UID, o deletion) bool {
	return o.version < s.born[pod] && !s.ranWell[pod]
}

// limits judges the budgets of the config, and the limit over all configs.
func (s *pods) limits(w *World, d *deletion) []Broken {
	var found []Broken
	exceeded := func(is bool, format string, args ...any) {
		if is {
			found = append(found, Broken{Limits, fmt.Sprintf(format, args...)})
		}
	}
	before, most := s.spent(d), w.deletable(d.at, s.options.Lag)
	exceeded(before.inWindow > d.spec.MaxDeletions, "%d pods were deleted since Service %s recovered; %d are allowed", before.inWindow, d.service, d.spec.MaxDeletions)
	exceeded(d.repeat && before.repeats >= d.spec.MaxRepeats,
		"%d replacements in %s were deleted within an hour; %d are allowed", before.repeats+1, d.pod.workload, d.spec.MaxRepeats)
	gap := d.at.Sub(before.last)
	exceeded(d.repeat && gap < d.spec.Cooldown.Duration-s.options.Lag,
		"a replacement in %s was deleted %s after another; the cooldown is %s", d.pod.workload, gap, d.spec.Cooldown.Duration)
	exceeded(before.inMinute > most, "%d pods were deleted within a minute; %d are allowed", before.inMinute, most)
	return found
}
