package conditionset

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// labels and annotations may change without a new generation, and rules may read them.
	labels, annotations map[string]string
	verdict             guard.Verdict
	admitted            actuate.Admitted
	// unreadable says why the spec can't be read.
	unreadable error
	// outdated: rules or exceptions changed since.
	outdated bool
}

// set judges a set that is stored, new or changed, and tells the fleet what it may do.
func (o *Observer) set(ctx context.Context, cs *v1alpha1.ConditionSet) {
	o.judging.Lock()
	defer o.judging.Unlock()
	o.tellFleet(ctx, cs, o.judge(ctx, cs, false))
}

// judgedAgain judges a stored set that didn't change.
func (o *Observer) judgedAgain(ctx context.Context, name string) error {
	o.judging.Lock() // else an older state read here could take the place of a newer one that an event brings
	defer o.judging.Unlock()
	cs := &v1alpha1.ConditionSet{}
	if err := o.Cache.Get(ctx, types.NamespacedName{Name: name}, cs); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.tellFleet(ctx, cs, o.judge(ctx, cs, true))
	return nil
}

// tellFleet tells the fleet what a set may do.
func (o *Observer) tellFleet(ctx context.Context, cs *v1alpha1.ConditionSet, j judgement) {
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
		defer o.Rejections.Note(policyName(cs), nil)
	}
	o.mu.Unlock()
	o.enqueueNodes(o.Facts.Fleet.ForgetSet(cs.UID))
	o.enqueueSet(cs.Name) // its series go with it
}

// judge asks the rules once for each state that they can read; anew also when nothing of it changed. It needs o.judging.
func (o *Observer) judge(ctx context.Context, cs *v1alpha1.ConditionSet, anew bool) judgement {
	o.mu.Lock()
	j, ok := o.judged[cs.Name]
	changes := o.changes
	o.mu.Unlock()
	if anew || !ok || !j.isOf(cs) {
		j = judgement{uid: cs.UID, generation: cs.Generation, labels: cs.Labels, annotations: cs.Annotations}
		j.admitted, j.verdict = guard.Admit(ctx, o.Guard, cs)
		o.Rejections.Note(policyName(cs), j.verdict.RuleIDs())
		if at := j.verdict.RecheckAt; !at.IsZero() {
			o.again.AddAfter(cs.Name, at.Sub(o.Facts.Clock.Now())+pastDeadline)
		}
	}
	if j.set, j.unreadable = condition.NewSet(cs); j.unreadable != nil {
		j.set = condition.Unreadable(cs)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changes != changes { // while it was judged, perhaps by the former rules
		j.outdated = true
		o.again.Add(cs.Name)
	}
	o.judged[cs.Name] = j
	return j
}

// isOf says whether the judgement is of the object in this state.
func (j judgement) isOf(cs *v1alpha1.ConditionSet) bool {
	return j.uid == cs.UID && j.generation == cs.Generation && maps.Equal(j.labels, cs.Labels) && maps.Equal(j.annotations, cs.Annotations)
}

// admits says whether one may act for the set now, while these rules are in force.
func (j judgement) admits(now time.Time, ruleSet string) bool {
	return j.admitted.Valid() && !j.outdated && j.verdict.RuleSetHash == ruleSet &&
		(j.verdict.RecheckAt.IsZero() || now.Before(j.verdict.RecheckAt))
}

func policyName(cs *v1alpha1.ConditionSet) string { return kindConditionSet + "/" + cs.Name }

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
	now, ruleSet := o.Facts.Clock.Now(), o.Guard.RuleSetHash(kindConditionSet)
	o.mu.Lock()
	defer o.mu.Unlock()
	var admitted []actuate.Admitted
	for _, step := range plan.Steps {
		if j := o.judged[step.SetName]; step.Harmful() && j.admits(now, ruleSet) {
			admitted = append(admitted, j.admitted)
		}
	}
	return admitted
}
