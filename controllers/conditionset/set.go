package conditionset

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/policy"
)

const kindConditionSet = "ConditionSet"

type storedSet = policy.Policy[*v1alpha1.ConditionSet, parsedSet]

// parsedSet is a set as the fleet takes it.
type parsedSet struct {
	set *condition.Set
	// unreadable says why the spec can't be read.
	unreadable error
}

// Unreadable says why the spec can't be read.
func (r parsedSet) Unreadable() error { return r.unreadable }

// read reads a set. Of one that can't be read only what is needed to undo it counts.
func read(cs *v1alpha1.ConditionSet, _ parsedSet) (r parsedSet) {
	if r.set, r.unreadable = condition.NewSet(cs); r.unreadable != nil {
		r.set = condition.Unreadable(cs)
	}
	return r
}

// update has the fleet learn what a set asks for and may do.
func (o *Observer) update(ctx context.Context, _, now storedSet) {
	cs := now.Object
	state := condition.StateOf(cs, now.Read.unreadable == nil, now.Admitted.Valid())
	o.request(o.Facts.Fleet.ObserveSet(now.Read.set, state, condition.StoredBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], o.Facts.Moment()))
	o.requestChanged()
	if o.Facts.Fleet.UsesLease() {
		o.watchLeases(ctx)
	}
}

func (o *Observer) forget(cs *v1alpha1.ConditionSet) {
	o.request(o.Facts.Fleet.ForgetSet(cs.UID, o.Facts.Moment()))
}

// isStored says whether a set of this name is stored. What a node's record says it is called may be anything.
func (o *Observer) isStored(name string) bool {
	_, ok := o.policies.Get(types.NamespacedName{Name: name})
	return ok
}

// admittedFor are the admissions that cover what a plan does to a node.
func (o *Observer) admittedFor(ctx context.Context, plan condition.Plan) []actuate.Admitted {
	var admitted []actuate.Admitted
	for _, step := range plan.Steps {
		if !step.Harmful() {
			continue
		}
		if set, ok := o.policies.Admission(ctx, types.NamespacedName{Name: step.SetName}, step.Set); ok {
			admitted = append(admitted, set.Admitted)
		}
	}
	return admitted
}
