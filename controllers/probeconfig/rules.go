package probeconfig

import "github.com/resourcestack/autohealer/internal/guard"

// rulesChanged has the affected configs judged again, and no others.
func (o *Observer) rulesChanged(c guard.Change) {
	if c.Policy {
		o.followPolicy()
	}
	o.judge.RulesChanged(c)
}

// followPolicy puts in force what all Guardrails together say of limits and pauses.
func (o *Observer) followPolicy() {
	all := o.Guard.Policy()
	o.fleet().SetLimits(all.Limits)
	if o.judge.FollowPolicy(all) {
		o.enqueueAll()
	}
}
