package healthcheckregistration

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// act carries out a plan, one condition after the other.
func (l *look) act(ctx context.Context, layout health.Layout, p plan) error {
	if layout.Problem != "" {
		l.problem = layout.Problem
	}
	if len(p.Steps)+len(p.unclaim) == 0 {
		l.r.Troubles.Settled(nameOf(l.target).String())
		return nil
	}
	object := l.object
	for i, step := range p.Steps {
		if l.stopped(step) {
			l.notFailed(p, i)
			return nil
		}
		deciders := p.deciders[step.Condition.Type]
		if step.Remove {
			deciders = l.removers(step.Condition.Type)
		}
		write := actuate.ConditionWrite{Target: object, Layout: layout, Step: step}
		for _, d := range deciders {
			write.Deciders, write.Admitted = append(write.Deciders, d.registration), append(write.Admitted, d.judgement.Admitted)
		}
		after, err := l.r.Conditions.Apply(ctx, write)
		if err != nil {
			l.notFailed(p, i)
			return l.failed(deciders, step, err)
		}
		object = after
		l.r.Report.acted(l.object, deciders, step, l.r.Observer.Facts.Clock.Now())
		l.r.Troubles.Written(nameOf(l.target).String(), policiesOf(deciders)...)
	}
	for _, conditionType := range p.unclaim {
		after, err := l.r.Conditions.Unclaim(ctx, object, conditionType)
		if err != nil {
			return err
		}
		object = after
	}
	return nil
}

// stopped says whether a step may not be carried out any more: the checks took their time, and meanwhile everything was frozen,
// or there is a registration that isn't known yet.
func (l *look) stopped(step health.Step) bool {
	paused, _ := l.r.Observer.judge.PausedBy()
	return paused.Frozen || step.Remove && l.r.Observer.inDoubt(l.target.Kind)
}

// notFailed takes back that conditions turned False, from a step on: the plan had all of them counted.
func (l *look) notFailed(p plan, from int) {
	for _, step := range p.Steps[from:] {
		if !turnsFalse(step) {
			continue
		}
		for _, d := range p.deciders[step.Condition.Type] {
			l.r.Observer.book.notFailed(d.registration.UID, l.target, step.Condition.Type)
		}
	}
}

// removers are the registrations that ask for a condition's removal.
func (l *look) removers(conditionType string) (all []decider) {
	for _, d := range l.deciders {
		if d.registration == nil {
			continue
		}
		for _, t := range d.removes() {
			if t == conditionType {
				all = append(all, d)
			}
		}
	}
	return all
}

// failed takes in that a write didn't come about. That someone else wrote first is no failure.
func (l *look) failed(deciders []decider, step health.Step, err error) error {
	l.r.Report.failed(deciders, step, err)
	if errors.Is(err, actuate.ErrStale) {
		return err
	}
	l.r.Layouts.Forget(l.object.GroupVersionKind())
	l.r.Troubles.Failed(nameOf(l.target).String(), err, policiesOf(deciders)...)
	return err
}

func policiesOf(deciders []decider) []status.Policy {
	policies := make([]status.Policy, len(deciders))
	for i, d := range deciders {
		policies[i] = status.Policy{UID: d.registration.UID, NamespacedName: types.NamespacedName{Name: d.registration.Name}}
	}
	return policies
}
