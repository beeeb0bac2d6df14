package weed

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// trial plans crash-looping pods one after the other for windows that are open or might be, as Decide would, and remembers
// what each deletion takes. It changes nothing.
type trial struct {
	y      *Yard
	config *Config
	state  lifecycle.State
	at     Moment
	// open windows by Service, all of one namespace.
	open map[string]*Window
	// acting are the configs whose deletions count for cycles, this one among them.
	acting func(namespace string) []*matcher
	// free says when the cluster-wide limit, of this value, has a place after so many deletions of this trial; nil leaves
	// the limit out.
	free  func(deleted int) time.Time
	limit int

	deleted int
	// repeats counts the replacements that would be deleted, by workload; a workload that loses any pod has an entry.
	repeats map[Workload]int
}

// plan plans a pod that depends on these Services.
func (t *trial) plan(p *podState, services []string) Plan {
	workload := p.Workload()
	in := Input{Pod: p.Pod, Autohealers: p.autohealers(t.y.ownNamespace), At: t.at, Limit: t.limit, OwnerHold: t.y.asked[workload].hold, Past: t.past(p, workload)}
	if t.free != nil {
		in.FreeAt = t.free(t.deleted)
	}
	for _, name := range services {
		if w := t.open[name]; w != nil {
			backing := t.y.services[types.NamespacedName{Namespace: p.Namespace, Name: name}].backs(p.Pod)
			in.Openings = append(in.Openings, Opening{
				Config: t.config, State: t.state, Window: *w, Backing: backing, Cycle: t.y.cycle(p, name, t.acting),
			})
		}
	}
	plan := PlanPod(in)
	if d := plan.Delete; d != nil {
		t.deleted++
		t.open[d.Service].Deleted++
		if t.repeats == nil {
			t.repeats = map[Workload]int{}
		}
		repeats := t.repeats[workload]
		if d.Repeat {
			repeats++
		}
		t.repeats[workload] = repeats
	}
	return plan
}

// past is what the pod's workload has been through, this trial included.
func (t *trial) past(p *podState, workload Workload) Past {
	past := t.y.past(p, t.at)
	if repeats, hit := t.repeats[workload]; hit {
		past.Last = t.at.Now
		past.Repeats = append(past.Repeats, slices.Repeat([]time.Time{t.at.Now}, repeats)...)
	}
	return past
}

func byName(a, b *podState) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
