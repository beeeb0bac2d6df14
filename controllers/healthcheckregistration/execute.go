package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/retry"
)

// execution is a plan that is being carried out.
type execution struct {
	*evaluation
	layout health.Layout
	plan   plan
	// object is the target as the last write left it.
	object   *unstructured.Unstructured
	attempts policy.Attempts
	outcome  outcome
}

// outcome is what became of a plan.
type outcome struct {
	// refused are writes that the API server refused for what they are. The rest went on.
	refused []error
	// notDone are all condition types whose step wasn't carried out, each with the refusal if its write was among these.
	notDone map[string]error
	// stoppedBy is why the rest wasn't tried.
	stoppedBy error
}

// execute carries out a plan, one condition after the other: one that is refused would be so again at each try, and holds up none of the
// others.
func (l *evaluation) execute(ctx context.Context, layout health.Layout, p plan) outcome {
	target := nameOf(l.target).String()
	if len(p.Steps)+len(p.ReleaseClaims) == 0 {
		l.r.Errors.Clear(target)
		return outcome{}
	}
	a := &execution{
		evaluation: l, layout: layout, plan: p, object: l.object,
		attempts: policy.Attempts{Failed: map[policy.Ref]error{}}, outcome: outcome{notDone: map[string]error{}},
	}
	a.attempts.Complete, a.outcome.stoppedBy = a.steps(ctx)
	if a.attempts.Complete {
		a.outcome.stoppedBy = a.releaseClaims(ctx)
	}
	l.r.Errors.RecordAttempts(target, a.attempts)
	return a.outcome
}

// steps writes and removes conditions, and says whether all were tried.
func (a *execution) steps(ctx context.Context) (all bool, ended error) {
	for i, step := range a.plan.Steps {
		if a.stopped(step) {
			a.markNotDone(a.plan.Steps[i:], nil)
			return false, nil
		}
		switch err := a.step(ctx, step); {
		case err == nil:
		case refused(err):
			a.markNotDone(a.plan.Steps[i:i+1], err)
			a.outcome.refused = append(a.outcome.refused, err)
		default:
			a.markNotDone(a.plan.Steps[i:], nil)
			return false, err
		}
	}
	return true, nil
}

func (a *execution) markNotDone(steps []health.Step, refusal error) {
	a.revertFalse(a.plan, steps)
	for _, step := range steps {
		a.outcome.notDone[step.Condition.Type] = refusal
	}
}

func (a *execution) step(ctx context.Context, step health.Step) error {
	deciding := a.decidedBy(a.plan, step.Condition.Type)
	if step.Remove {
		deciding = a.removers(step.Condition.Type)
	}
	write := actuate.ConditionWrite{Target: a.object, Planned: a.evaluation.object, Layout: a.layout, Step: step}
	for _, d := range deciding {
		write.Deciders, write.Admitted = append(write.Deciders, d.Registration), append(write.Admitted, d.stored.Admitted)
	}
	found, now := health.Find(a.object, step.Condition.Type), a.r.Observer.Facts.Clock.Now()
	var err error
	if a.object, err = a.r.Conditions.Apply(ctx, write); err != nil {
		a.failed(deciding, step, err)
		return err
	}
	a.r.conflicts.RecordWrite(nameOf(a.target).String(), a.object.GetUID(), step.Condition.Type, found, step.Result(), now)
	a.r.Report.reportChange(a.evaluation.object, deciding, step, now)
	a.attempts.Written = append(a.attempts.Written, policiesOf(deciding)...)
	return nil
}

// releaseClaims takes out of the record what the target doesn't have, or what isn't ours.
func (a *execution) releaseClaims(ctx context.Context) error {
	for _, conditionType := range a.plan.ReleaseClaims {
		if a.stopped(health.Step{Remove: true}) {
			return nil
		}
		after, err := a.r.Conditions.Unclaim(ctx, a.object, conditionType)
		switch {
		case err == nil:
			a.object = after
		case refused(err):
			a.outcome.refused = append(a.outcome.refused, err)
			a.undoFailed(err)
		default:
			return err
		}
	}
	return nil
}

// refused says whether the API server refused a write for what it is, which says nothing of others. A conflict of another kind than
// one of apply is about the target.
func refused(err error) bool {
	return !errors.Is(err, actuate.ErrStale) && retry.Refused(err)
}

// stopped says whether a step may not be carried out any more: the checks took their time, and meanwhile everything was frozen,
// or there is a registration that isn't known yet.
func (l *evaluation) stopped(step health.Step) bool {
	paused, _ := l.r.Observer.policies.PausedBy()
	return paused.Frozen || step.Remove && l.r.Observer.registrationsUnknown(l.target.Kind)
}

// revertFalse takes back that conditions turned False, of steps that didn't come about: the plan had all of them counted.
func (l *evaluation) revertFalse(p plan, steps []health.Step) {
	for _, step := range steps {
		if !step.Counted {
			continue
		}
		for _, index := range p.DecidedBy[step.Condition.Type] {
			if breaker := l.breakerOf(&l.registrations[index]); breaker != nil {
				breaker.RevertFalse(nameOf(l.target).String(), step.Condition.Type)
			}
		}
	}
}

// removers are the registrations that ask for a condition's removal.
func (l *evaluation) removers(conditionType string) (all []activeRegistration) {
	for _, d := range l.registrations {
		if d.State == lifecycle.Active && slices.Contains(d.Remove, conditionType) {
			all = append(all, d)
		}
	}
	return all
}

// failed takes in that a write didn't come about; the controller logs the error itself. That someone else wrote first is no failure.
func (a *execution) failed(deciding []activeRegistration, step health.Step, err error) {
	if errors.Is(err, actuate.ErrStale) {
		count(deciding, step, "stale")
		return
	}
	count(deciding, step, "failed")
	a.r.Layouts.Invalidate(a.object.GroupVersionKind())
	for _, policy := range policiesOf(deciding) {
		a.attempts.Failed[policy] = err
	}
	if step.Remove {
		a.undoFailed(err)
	}
}

// undoFailed takes in for registrations that are being deleted why something stays on the target: they wait for it, whosever it is.
func (a *execution) undoFailed(err error) {
	for i := range a.registrations {
		if d := &a.registrations[i]; d.State == lifecycle.Deleted {
			a.attempts.Failed[policy.Ref{UID: d.stored.UID, NamespacedName: types.NamespacedName{Name: d.stored.Object.Name}}] = err
		}
	}
}

func policiesOf(deciding []activeRegistration) []policy.Ref {
	policies := make([]policy.Ref, len(deciding))
	for i, d := range deciding {
		policies[i] = policy.Ref{UID: d.UID, NamespacedName: types.NamespacedName{Name: d.Name}}
	}
	return policies
}

// Reporter reports conditions that changed: Events for people, metrics for machines.
type Reporter struct {
	Events events.EventRecorder
	acts   *actuate.Events
}

// NewReporter reports to a recorder.
func NewReporter(recorder events.EventRecorder) *Reporter {
	dropped := func(events int) { eventsDropped.Add(float64(events)) }
	return &Reporter{Events: recorder, acts: actuate.NewEvents(recorder, dropped)}
}

// reportChange reports a condition that was written or removed, on the target and on each registration that decides it. One whose
// status is as before is counted alone.
func (r *Reporter) reportChange(target *unstructured.Unstructured, deciding []activeRegistration, step health.Step, now time.Time) {
	count(deciding, step, "done")
	if !step.Remove && step.Previous == step.Condition.Status {
		return
	}
	reason, note := describeChange(step)
	for _, d := range deciding {
		r.acts.Emit(now, refOf(target), registrationRef(d), reason, verb(step), note)
	}
	if len(deciding) == 0 {
		r.Events.Eventf(refOf(target), nil, corev1.EventTypeNormal, reason, verb(step), "%s", note)
	}
}

func verb(step health.Step) string {
	if step.Remove {
		return "RemoveCondition"
	}
	return "SetCondition"
}

func describeChange(step health.Step) (reason, note string) {
	c := &step.Condition
	if step.Remove {
		return v1alpha1.ReasonConditionRemoved, fmt.Sprintf("Condition %s is removed: no HealthCheckRegistration decides it any more, or one asks for that.", c.Type)
	}
	before := string(step.Previous)
	if before == "" {
		before = "not there"
	}
	return v1alpha1.ReasonConditionChanged, fmt.Sprintf("Condition %s is %s, and was %s: %s", c.Type, c.Status, before, health.Shortened(c.Message, maxMessage))
}

func refOf(target *unstructured.Unstructured) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: target.GetAPIVersion(), Kind: target.GetKind(), Namespace: target.GetNamespace(), Name: target.GetName(), UID: target.GetUID(),
	}
}

func registrationRef(d activeRegistration) *v1alpha1.HealthCheckRegistration {
	return &v1alpha1.HealthCheckRegistration{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindRegistration},
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, UID: d.UID},
	}
}
