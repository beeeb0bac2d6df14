package conditionset

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/kube/judging"
)

// judgement is what the rules said of a stored set.
type judgement = judging.Judgement[*v1alpha1.ConditionSet, reading]

// reading is a set as the fleet takes it.
type reading struct {
	set *condition.Set
	// unreadable says why the spec can't be read.
	unreadable error
}

func read(cs *v1alpha1.ConditionSet, _ reading) (r reading) {
	if r.set, r.unreadable = condition.NewSet(cs); r.unreadable != nil {
		r.set = condition.Unreadable(cs)
	}
	return r
}

// set judges a set that is stored, new or changed, and tells the fleet what it may do.
func (o *Observer) set(ctx context.Context, cs *v1alpha1.ConditionSet) {
	key := types.NamespacedName{Name: cs.Name}
	if !o.judge.Observe(cs) {
		o.judge.Judge(ctx, key)
	}
	o.tellFleet(ctx, key)
}

// judgeNow judges a stored set that didn't change.
func (o *Observer) judgeNow(ctx context.Context, key types.NamespacedName) {
	if o.judge.Judge(ctx, key) {
		o.tellFleet(ctx, key)
	}
}

// tellFleet tells the fleet what a set may do, by the latest judgement.
func (o *Observer) tellFleet(ctx context.Context, key types.NamespacedName) {
	o.telling.Lock()
	j, ok := o.judge.Of(key)
	if !ok {
		o.telling.Unlock()
		return
	}
	cs := j.Object
	affected := o.Facts.Fleet.ObserveSet(j.Read.set, condition.StandingOf(cs, j.Read.unreadable == nil, j.Admitted.Valid()), condition.StoredBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], o.Facts.Moment())
	o.telling.Unlock()
	o.enqueueNodes(affected)
	o.enqueueSet(key.Name)
	o.enqueueDirty()
	if o.Facts.Fleet.UsesLease() {
		o.watchLeases(ctx)
	}
}

func (o *Observer) setGone(cs *v1alpha1.ConditionSet) {
	o.judge.Forget(cs)
	o.telling.Lock()
	affected := o.Facts.Fleet.ForgetSet(cs.UID)
	o.telling.Unlock()
	o.enqueueNodes(affected)
	o.enqueueSet(cs.Name) // its series go with it
}

// admits says whether one may act for the set now, while these rules are in force.
func admits(j judgement, now time.Time, ruleSet string) bool {
	return j.Admitted.Valid() && !j.Outdated && j.Verdict.RuleSetHash == ruleSet &&
		(j.Verdict.RecheckAt.IsZero() || now.Before(j.Verdict.RecheckAt))
}

// knows says whether a set of this name is stored. What a node's record says it is called may be anything.
func (o *Observer) knows(name string) bool {
	_, ok := o.judge.Of(types.NamespacedName{Name: name})
	return ok
}

// admittedFor are the admissions that cover a plan's steps.
func (o *Observer) admittedFor(plan condition.Plan) []actuate.Admitted {
	now, ruleSet := o.Facts.Clock.Now(), o.Guard.RuleSetHash(kindConditionSet)
	var admitted []actuate.Admitted
	for _, step := range plan.Steps {
		if j, ok := o.judge.Of(types.NamespacedName{Name: step.SetName}); ok && step.Harmful() && admits(j, now, ruleSet) {
			admitted = append(admitted, j.Admitted)
		}
	}
	return admitted
}
