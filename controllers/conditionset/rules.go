package conditionset

import (
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/guard"
)

const kindConditionSet = "ConditionSet"

// rulesChanged has the affected sets judged again, and no others.
func (o *Observer) rulesChanged(c guard.Change) {
	if c.Policy {
		o.followPolicy()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
	if slices.Contains(c.Kinds, kindConditionSet) {
		for name := range o.judged {
			o.judgeSoon(name)
		}
	}
	for _, target := range c.Targets {
		if target.Kind == kindConditionSet {
			o.judgeSoon(target.Name)
		}
	}
}

// judgeSoon has a set judged again; until then nobody acts for it. It needs o.mu.
func (o *Observer) judgeSoon(name string) {
	j, ok := o.judged[name]
	if !ok {
		return // it is judged when it comes, or being judged: judge notices
	}
	j.outdated = true
	o.judged[name] = j
	o.again.Add(name)
}

// followPolicy puts what all Guardrails together say of limits, pauses, precedence and condition types in force.
func (o *Observer) followPolicy() {
	all := o.Guard.Policy()
	declared := make([]condition.KnownType, 0, len(all.ConditionTypes))
	for name, healthy := range all.ConditionTypes {
		declared = append(declared, condition.KnownType{Type: name, Healthy: healthy})
	}
	types, err := condition.NewRegistry(declared...)
	if err != nil {
		log.Log.Error(err, "Left out declared condition types")
	}
	policy := condition.Policy{Limits: all.Limits, Precedence: condition.Precedence(all.Precedence), Paused: pausedBy(all), Types: types}
	o.enqueueNodes(o.Facts.Fleet.SetPolicy(policy, o.Facts.Moment()))
	o.mu.Lock()
	read := o.unread
	o.unread = slices.Contains(all.PausedBy, guardrail.UnreadName)
	read = read && !o.unread
	turned := o.paused != policy.Paused
	o.paused = policy.Paused
	for name := range o.judged {
		if read {
			o.judgeSoon(name)
		}
		if turned {
			enqueue(o.sets, name, 0)
		}
	}
	o.mu.Unlock()
	o.enqueueDirty()
}

// pausedBy says what pauses new acts, as status and holds tell it; "" when nothing does.
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

// judgeAgain judges stored sets whose verdict may have changed though they didn't, until ctx ends.
func (o *Observer) judgeAgain(ctx context.Context) {
	defer context.AfterFunc(ctx, o.again.ShutDown)()
	for {
		name, stopping := o.again.Get()
		if stopping {
			return
		}
		if err := o.judgedAgain(ctx, name); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Can't read a ConditionSet from the cache", "set", name)
		}
		o.again.Done(name)
	}
}
