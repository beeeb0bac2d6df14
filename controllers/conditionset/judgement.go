package conditionset

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
)

// judgement is what the rules said of a stored set.
type judgement struct {
	uid        types.UID
	generation int64
	set        *condition.Set
	verdict    guard.Verdict
	admitted   actuate.Admitted
	// unreadable says why the spec can't be read.
	unreadable error
}

// set judges a set that is stored, new or changed, and tells the fleet what it may do.
func (o *Observer) set(ctx context.Context, cs *v1alpha1.ConditionSet) {
	j := o.judge(ctx, cs)
	affected := o.Facts.Fleet.ObserveSet(j.set, j.standing(cs), openBreaker(cs), cs.Annotations[v1alpha1.AnnotationResetBreaker], o.Facts.Moment())
	o.enqueueNodes(affected)
	o.enqueueSet(cs.Name)
	o.enqueueDirty()
	if o.Facts.Fleet.UsesLease() {
		o.watchLeases(ctx)
	}
}

func (o *Observer) setGone(cs *v1alpha1.ConditionSet) {
	o.mu.Lock()
	if o.judged[cs.Name].uid == cs.UID {
		delete(o.judged, cs.Name)
	}
	o.mu.Unlock()
	o.enqueueNodes(o.Facts.Fleet.ForgetSet(cs.UID))
}

// judge asks the rules once for each generation.
func (o *Observer) judge(ctx context.Context, cs *v1alpha1.ConditionSet) judgement {
	j, ok := o.judgementOf(cs.Name)
	if !ok || j.uid != cs.UID || j.generation != cs.Generation || j.verdict.RuleSetHash != o.Guard.RuleSetHash("ConditionSet") {
		j = judgement{uid: cs.UID, generation: cs.Generation}
		j.admitted, j.verdict = guard.Admit(ctx, o.Guard, cs)
	}
	if j.set, j.unreadable = condition.NewSet(cs); j.unreadable != nil {
		j.set = condition.Unreadable(cs)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judged[cs.Name] = j
	return j
}

// standing is what the stored object allows. Acting waits for the finalizer and the recorded key: without them what is
// done could not be undone.
func (j judgement) standing(cs *v1alpha1.ConditionSet) condition.Standing {
	switch {
	case cs.DeletionTimestamp != nil:
		return condition.Withdrawn
	case j.unreadable != nil:
		return condition.Frozen // whether its nodes still match can't be told
	case j.set.Observe:
		return condition.Withdrawn
	case !j.admitted.Valid():
		return condition.Held
	case !slices.Contains(cs.Finalizers, v1alpha1.FinalizerUndo), !slices.Contains(cs.Status.TaintKeys, cs.Spec.TaintKey):
		return condition.Frozen
	}
	return condition.Active
}

func openBreaker(cs *v1alpha1.ConditionSet) *condition.OpenBreaker {
	b := cs.Status.Breaker
	if b == nil {
		return nil
	}
	return &condition.OpenBreaker{ID: b.ID, OpenedAt: b.OpenedAt.Time, Reset: b.Reset}
}

// judgementOf gives what the rules said of the set with this name.
func (o *Observer) judgementOf(name string) (judgement, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	j, ok := o.judged[name]
	return j, ok
}

// knows says whether a set of this name is stored. What a node's record says it is called may be anything.
func (o *Observer) knows(name string) bool {
	_, ok := o.judgementOf(name)
	return ok
}

// admittedFor are the admissions that cover a plan's steps.
func (o *Observer) admittedFor(plan condition.Plan) []actuate.Admitted {
	o.mu.Lock()
	defer o.mu.Unlock()
	var admitted []actuate.Admitted
	for _, step := range plan.Steps {
		if j := o.judged[step.SetName]; step.Harmful() && j.admitted.Valid() {
			admitted = append(admitted, j.admitted)
		}
	}
	return admitted
}
