package conditionset

import (
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/judging"
)

const kindConditionSet = "ConditionSet"

// rulesChanged has the affected sets judged again, and no others.
func (o *Observer) rulesChanged(c guard.Change) {
	if c.Policy {
		o.followPolicy()
	}
	o.judge.RulesChanged(c)
}

// followPolicy puts what all Guardrails together say of limits, pauses, precedence and condition types in force.
func (o *Observer) followPolicy() {
	all := o.Guard.Policy()
	types, err := all.Registry()
	if err != nil {
		log.Log.Error(err, "Left out declared condition types")
	}
	policy := condition.Policy{Limits: all.Limits, Precedence: condition.Precedence(all.Precedence), Paused: judging.PausedBy(all).By, Frozen: all.Frozen(), Types: types}
	o.enqueueNodes(o.Facts.Fleet.SetPolicy(policy, o.Facts.Moment()))
	if o.judge.FollowPolicy(all) {
		for _, key := range o.judge.Keys() {
			o.enqueueSet(key.Name)
		}
	}
	o.enqueueDirty()
}
