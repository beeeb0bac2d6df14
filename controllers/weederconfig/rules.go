package weederconfig

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// rulesChanged has the affected configs judged again, and no others.
func (o *Observer) rulesChanged(c guard.Change) {
	if c.Policy {
		o.followPolicy()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
	if slices.Contains(c.Kinds, kindWeederConfig) {
		for key := range o.judged {
			o.judgeSoon(key)
		}
	}
	for _, target := range c.Targets {
		if target.Kind == kindWeederConfig {
			o.judgeSoon(types.NamespacedName{Namespace: target.Namespace, Name: target.Name})
		}
	}
}

// judgeSoon has a config judged again; until then nobody acts for it. It needs o.mu.
func (o *Observer) judgeSoon(key types.NamespacedName) {
	j, ok := o.judged[key]
	if !ok {
		return // it is judged when it comes, or being judged: judge notices
	}
	j.outdated = true
	o.judged[key] = j
	o.again.Add(key)
}

// followPolicy puts in force what all Guardrails together say of limits and pauses.
func (o *Observer) followPolicy() {
	all := o.Guard.Policy()
	o.follow(o.yard().SetLimits(all.Limits))
	o.mu.Lock()
	read := o.unread
	o.unread = slices.Contains(all.PausedBy, guardrail.UnreadName)
	read = read && !o.unread
	turned := o.paused != pausedBy(all)
	o.paused = pausedBy(all)
	var told []judgement
	for key, j := range o.judged {
		if read {
			o.judgeSoon(key)
		}
		if turned {
			told = append(told, j)
			kube.Enqueue(o.configs, key, 0)
		}
	}
	o.mu.Unlock()
	for _, j := range told {
		o.tellYard(j)
	}
}

// pausedBy says what pauses new acts, as status tells it; "" when nothing does.
func pausedBy(p guardrail.Policy) string {
	switch {
	case !p.Paused():
		return ""
	case slices.Contains(p.PausedBy, guardrail.UnreadName):
		return "Guardrails aren't read yet, which pauses all new acts"
	case len(p.PausedBy) == 1:
		return "Guardrail " + p.PausedBy[0] + " pauses all new acts"
	}
	return "Guardrails " + strings.Join(p.PausedBy, ", ") + " pause all new acts"
}

// pausedBy says which Guardrails pause new acts, "" when none does; ok is false while none is read.
func (o *Observer) pausedBy() (by string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.paused, !o.unread
}
