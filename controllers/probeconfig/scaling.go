package probeconfig

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
)

// scale brings a target's dependents nearer to where its latest run wants them, and says when to go on.
func (r *TargetReconciler) scale(ctx context.Context, t *target, p permission, place namespace) (again time.Time, err error) {
	in, former := r.situation(t, p, place)
	if in.Objects != nil && len(former) == 0 && t.atRest(in) {
		r.rest(t)
		r.dismiss(t)
		return time.Time{}, nil
	}
	if held := r.heldBefore(t, in, former); !held.Allowed {
		in.Episode = r.episode(t, in)
		r.remember(t, in, probe.PlanScaling(in), probe.Plan{Done: true}, held)
		return held.LookAgain, nil
	}
	objects, readErr := r.look(ctx, t, in.Config, in.Want == probe.Up)
	was, formerErr := r.giveBackFormer(ctx, t, in.Config, former, place)
	if readErr != nil {
		return time.Time{}, errors.Join(readErr, formerErr)
	}
	in.Objects = objects
	in.Episode = r.episode(t, in)
	plan := probe.PlanScaling(in)
	if harmful(plan) && !in.Confirmed() {
		r.Prober.Hasten(t.key, in.Now) // the run wakes us
		r.remember(t, in, plan, was, probe.Permit{Allowed: true})
		return time.Time{}, formerErr
	}
	if held := r.permit(t, in, plan); !held.Allowed {
		r.remember(t, in, plan, was, held)
		return held.LookAgain, formerErr
	}
	again, err = r.act(ctx, t, p, in, plan, was)
	return again, errors.Join(err, formerErr)
}

// heldBefore says what would hold a target back of which nothing is scaled down, whatever its objects are like now: then they
// needn't be read. All targets may fail at once, and are asked again at each run.
func (r *TargetReconciler) heldBefore(t *target, in probe.Scaling, former []probe.Dependent) probe.Permit {
	t.mu.Lock()
	at, down := t.fleetKey(), t.down()
	t.mu.Unlock()
	if in.Want != probe.Down || in.Objects == nil || down || len(former) > 0 {
		return probe.Permit{Allowed: true}
	}
	return r.Observer.fleet().MayGoDown(at, in.Now)
}

// act carries out a plan that is permitted.
func (r *TargetReconciler) act(ctx context.Context, t *target, p permission, in probe.Scaling, plan, was probe.Plan) (again time.Time, err error) {
	var admitted actuate.AdmittedProber
	if harmful(plan) {
		var held probe.Permit
		if admitted, held, err = r.mayTake(ctx, t, p, in, &plan); !admitted.Valid() {
			r.placeBack(t, in)
			if err != nil || held.Allowed {
				return in.Now.Add(flowLook), err
			}
			r.remember(t, in, plan, was, held)
			return time.Time{}, nil // the next run asks again
		}
		t.assumeTaken(in.Config, plan)
	}
	err = r.carryOut(ctx, t, in, plan, admitted)
	r.remember(t, in, plan, was, probe.Permit{Allowed: true})
	r.dismiss(t)
	return r.goOn(in, plan, was), err
}

// atRest says whether there is nothing to do for a target whose objects are known.
func (t *target) atRest(in probe.Scaling) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case in.Withdrawn:
		return t.restored && len(t.left) == 0
	case in.Want == probe.Up:
		return !t.down() && len(t.flow.Raised) == 0
	}
	return in.Want == probe.Hold
}

// situation is what a plan is made from, but for the objects if they have to be read. Those of an older config aren't given.
func (r *TargetReconciler) situation(t *target, p permission, place namespace) (in probe.Scaling, former []probe.Dependent) {
	now := r.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	in = probe.Scaling{Config: t.config, Hibernated: place.hibernated, Flow: t.flow, Tick: t.state.At, Now: now, Server: r.Observer.Facts.Server.Now()}
	in.Want, in.Withdrawn = t.state.Want(p.state, now)
	if t.objectsOf == t.config {
		in.Objects = t.objects
	}
	if !p.state.IsFrozen() {
		former = t.former
	}
	return in, former
}

// episode is when the protection began that is going on, or begins now.
func (r *TargetReconciler) episode(t *target, in probe.Scaling) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if in.Want != probe.Down {
		return time.Time{}
	}
	return probe.Episode(in.Config, in.Objects, t.protection, in.Now)
}

// noteEpisode keeps when the protection began. What begins once something is given back is another. It needs t.mu.
func (t *target) noteEpisode(in probe.Scaling, plan probe.Plan) {
	switch {
	case in.Want == probe.Down:
		t.protection = probe.Protection{Since: in.Episode}
	case in.Want == probe.Up && len(plan.Acts) > 0:
		t.protection = probe.Protection{Over: true}
	}
}

// rest ends a flow: nothing is to be scaled now.
func (r *TargetReconciler) rest(t *target) {
	t.mu.Lock()
	told := t.held.Reason != "" || len(t.findings) > 0
	t.flow, t.held, t.findings = probe.Flow{}, probe.Permit{}, nil
	if !t.down() {
		t.protection = probe.Protection{}
	}
	t.mu.Unlock()
	if told {
		r.Observer.requestConfig(t.key.Config)
	}
}

// carryOut writes a plan's acts, all at once, and tells of them. Those that take replicas need an admission.
func (r *TargetReconciler) carryOut(ctx context.Context, t *target, in probe.Scaling, plan probe.Plan, admitted actuate.AdmittedProber) error {
	if len(plan.Acts) == 0 {
		r.Troubles.Settled(nameOf(t.key).String())
		return nil
	}
	errs := make([]error, len(plan.Acts))
	var acting sync.WaitGroup
	for i, act := range plan.Acts {
		acting.Go(func() {
			errs[i] = r.Scales.Apply(ctx, actuate.ScaleChange{Config: in.Config, Namespace: t.key.Namespace, Act: act}, admitted)
			r.Report.acted(in.Config, t, act, errs[i], r.now())
		})
	}
	acting.Wait()
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.doubtObjects()
	}
	return r.settle(t, in.Config, errs)
}

// settle tells of trouble. That someone else wrote first is none: the object is read again.
func (r *TargetReconciler) settle(t *target, c *probe.Config, errs []error) error {
	policy := policy.Ref{UID: c.UID, NamespacedName: c.Key()}
	name := nameOf(t.key).String()
	var failed error
	for _, err := range errs {
		switch {
		case err == nil:
			r.Troubles.Written(name, policy)
		case !errors.Is(err, actuate.ErrStale):
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		r.Troubles.Failed(name, failed, policy)
	}
	r.Observer.requestConfig(c.Key())
	return failed
}

// remember keeps how far the scaling came, and what was found in its way. Was is the plan for former dependents.
func (r *TargetReconciler) remember(t *target, in probe.Scaling, plan, was probe.Plan, held probe.Permit) {
	findings := slices.Concat(plan.Findings, was.Findings)
	t.mu.Lock()
	told := t.held.Reason == held.Reason && sameFindings(t.findings, findings)
	t.held, t.findings, t.left = held, findings, slices.Concat(plan.Left, was.Left)
	if held.Allowed {
		t.flow = plan.Flow
	}
	if plan.Done && len(plan.Acts) == 0 {
		t.flow = probe.Flow{}
	}
	if held.Allowed || in.Want == probe.Down {
		t.noteEpisode(in, plan)
	}
	restored := in.Withdrawn && plan.Done && was.Done && t.knew(in.Config, was)
	turned := t.restored != restored
	t.restored = restored
	t.mu.Unlock()
	if !told || turned {
		r.Observer.requestConfig(t.key.Config)
	}
}

// knew says whether a plan was made for all that may have to be given back: what was found or named since wasn't in it. It needs
// t.mu.
func (t *target) knew(c *probe.Config, was probe.Plan) bool {
	return t.config == c && !slices.ContainsFunc(t.former, func(d probe.Dependent) bool {
		return !slices.ContainsFunc(was.Left, func(f probe.Finding) bool { return f.Ref == d.Ref })
	})
}

// dismiss drops a target that the config doesn't ask for any more, once it has back what was taken. Those of a config that is
// deleted go with it, and say until then what they leave.
func (r *TargetReconciler) dismiss(t *target) {
	if !t.over() || !r.drop(t) {
		return
	}
	r.Report.left(t, r.now())
	r.Observer.requestTarget(t.key)
	r.Observer.requestConfig(t.key.Config)
}

func (t *target) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.departed && t.restored
}

// drop forgets a target if nothing asks for it.
func (r *TargetReconciler) drop(t *target) bool {
	r.Observer.telling.Lock()
	defer r.Observer.telling.Unlock()
	if j, ok := r.Observer.policies.Get(t.key.Config); !t.over() || ok && j.Object.DeletionTimestamp != nil {
		return false
	}
	t.mu.Lock()
	at := t.fleetKey()
	t.mu.Unlock()
	r.Observer.targets.forget(t.key)
	r.Observer.fleet().Forget(at)
	return true
}

func sameFindings(a, b []probe.Finding) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Ref != b[i].Ref || a[i].Reason != b[i].Reason {
			return false
		}
	}
	return true
}

// goOn says when to look at a flow again.
func (r *TargetReconciler) goOn(in probe.Scaling, plan, was probe.Plan) time.Time {
	waits := !plan.Flow.StoppedAt.IsZero() || in.Want == probe.Hold && !in.Withdrawn // for the next run
	unfinished := func(p probe.Plan) bool { return len(p.Acts) > 0 || !p.Done && !p.Unread }
	switch {
	case unfinished(was):
		return in.Now.Add(flowLook)
	case !waits && unfinished(plan):
		return plan.Look(in.Now)
	case plan.Unread, was.Unread, len(plan.Left)+len(was.Left) > 0:
		return in.Now.Add(stuckLook)
	}
	return time.Time{}
}
