package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// errNotAdmitted: the config isn't judged just now, or isn't admitted any more.
var errNotAdmitted = errors.New("nothing admits the scaling now")

// scale brings a target's dependents nearer to where its latest run wants them, and says when to go on.
func (r *TargetReconciler) scale(ctx context.Context, t *target, p permission, place namespace) (again time.Time, err error) {
	in, former := r.situation(t, p, place)
	if in.Objects != nil && len(former) == 0 && t.atRest(in) {
		r.rest(t)
		r.dismiss(t)
		return time.Time{}, nil
	}
	if in.Objects, err = r.look(ctx, t, in.Config); err != nil {
		return time.Time{}, err
	}
	if err := r.giveBackFormer(ctx, t, in.Config, former, place); err != nil {
		return time.Time{}, err
	}
	in.Episode = probe.Episode(in.Config, in.Objects, r.episode(t, in.Want), in.Now)
	plan := probe.PlanScaling(in)
	if held := r.permit(t, in, plan); !held.Allowed {
		r.remember(t, in, plan, held)
		return held.LookAgain, nil
	}
	return r.act(ctx, t, p, in, plan)
}

// act carries out a plan that is permitted.
func (r *TargetReconciler) act(ctx context.Context, t *target, p permission, in probe.Scaling, plan probe.Plan) (again time.Time, err error) {
	if harmful(plan) {
		if doubt, err := r.confirm(ctx, t, in.Config, p.standing); doubt || err != nil {
			return in.Now.Add(flowLook), err
		}
	}
	if err = r.carryOut(ctx, t, in, plan); errors.Is(err, errNotAdmitted) {
		return in.Now.Add(flowLook), nil
	}
	r.remember(t, in, plan, probe.Permit{Allowed: true})
	r.dismiss(t)
	return r.goOn(in, plan), err
}

// atRest says whether there is nothing to do for a target whose objects are known.
func (t *target) atRest(in probe.Scaling) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case in.Withdrawn:
		return t.restored
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
	in = probe.Scaling{Config: t.config, Hibernated: place.hibernated, Flow: t.flow, Tick: t.state.At, Now: now}
	in.Want, in.Withdrawn = t.state.Want(p.standing, now)
	if t.objectsOf == t.config {
		in.Objects = t.objects
	}
	if p.standing != probe.Frozen {
		former = t.former
	}
	return in, former
}

// episode is when the protection began that is going on, if it is known.
func (r *TargetReconciler) episode(t *target, want probe.Direction) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if want != probe.Down {
		return time.Time{}
	}
	return t.episode
}

// rest ends a flow: nothing is to be scaled now.
func (r *TargetReconciler) rest(t *target) {
	t.mu.Lock()
	told := t.held.Reason != "" || len(t.findings) > 0
	t.flow, t.held, t.findings = probe.Flow{}, probe.Permit{}, nil
	if !t.down() {
		t.episode = time.Time{}
	}
	t.mu.Unlock()
	if told {
		r.Observer.enqueueConfig(t.key.Config)
	}
}

// look reads a config's dependents, all at once, and tells the fleet whether any of them is down.
func (r *TargetReconciler) look(ctx context.Context, t *target, c *probe.Config) ([]probe.Object, error) {
	objects := r.readAll(ctx, t.key.Namespace, c.Dependents)
	var unread error
	down, denied := false, true
	for i, o := range objects {
		if o.Unread != "" {
			denied = denied && o.Denied
			unread = errors.Join(unread, fmt.Errorf("%s: %s", c.Dependents[i].Ref, o.Unread))
		}
		down = down || o.Record != nil && o.Record.Of(c)
	}
	t.mu.Lock()
	at := t.fleetKey()
	t.mu.Unlock()
	if unread != nil {
		if denied { // what may not be read was never scaled either, and must not use up the others' cap
			r.Observer.fleet().ObserveDown(at, down)
		}
		r.Troubles.Failed(nameOf(t.key).String(), unread, status.Policy{UID: c.UID, NamespacedName: c.Key()})
		return nil, unread // nothing is scaled from half a view
	}
	t.mu.Lock()
	before := t.taken()
	t.objects, t.objectsOf = objects, c
	turned := before != t.taken()
	down = down || len(t.former) > 0 // until they are read
	t.mu.Unlock()
	r.Observer.fleet().ObserveDown(at, down)
	if turned {
		r.Observer.enqueueConfig(t.key.Config)
		r.Observer.enqueueTarget(t.key, 0) // what it may do depends on it
	}
	return objects, nil
}

func (r *TargetReconciler) readAll(ctx context.Context, namespace string, dependents []probe.Dependent) []probe.Object {
	objects := make([]probe.Object, len(dependents))
	var reading sync.WaitGroup
	for i, d := range dependents {
		reading.Go(func() { objects[i] = r.Reader.Read(ctx, namespace, d.Ref) })
	}
	reading.Wait()
	return objects
}

// giveBackFormer gives back what was taken from objects that the config doesn't name any more.
func (r *TargetReconciler) giveBackFormer(ctx context.Context, t *target, c *probe.Config, former []probe.Dependent, place namespace) error {
	if len(former) == 0 {
		return nil
	}
	of := *c
	of.Dependents = former
	in := probe.Scaling{Config: &of, Withdrawn: true, Hibernated: place.hibernated, Now: r.now(), Objects: r.readAll(ctx, t.key.Namespace, former)}
	plan := probe.PlanScaling(in)
	if err := r.carryOut(ctx, t, in, plan); err != nil {
		return err
	}
	if !plan.Done {
		r.Observer.enqueueTarget(t.key, flowLook)
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.former = nil
	r.Observer.fleet().ObserveDown(t.fleetKey(), slices.ContainsFunc(t.objects, func(o probe.Object) bool { return o.Record != nil && o.Record.Of(c) }))
	return nil
}

func harmful(plan probe.Plan) bool {
	for _, act := range plan.Acts {
		if act.Step == probe.Take || act.Step == probe.Lower {
			return true
		}
	}
	return false
}

// permit asks the fleet for what the plan does. An undo of everything isn't paced.
func (r *TargetReconciler) permit(t *target, in probe.Scaling, plan probe.Plan) probe.Permit {
	t.mu.Lock()
	at := t.fleetKey()
	t.mu.Unlock()
	switch {
	case harmful(plan):
		return r.Observer.fleet().PermitDown(at, in.Now)
	case in.Want == probe.Up && !in.Withdrawn && len(plan.Acts) > 0:
		return r.Observer.fleet().PermitUp(at, in.Now)
	}
	return probe.Permit{Allowed: true}
}

// confirm reads live what the decision to take replicas rests on; doubt says that it isn't so any more. Then nothing is
// taken, and what is new is on its way.
func (r *TargetReconciler) confirm(ctx context.Context, t *target, c *probe.Config, standing probe.Standing) (doubt bool, err error) {
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, types.NamespacedName{Name: t.key.Namespace}, &ns); err != nil {
		return true, fmt.Errorf("read namespace %s before scaling down in it: %w", t.key.Namespace, err)
	}
	is := readNamespace(&ns)
	if is.ending || is.hibernated || c.Namespaces != nil && !c.Namespaces.Matches(labels.Set(is.labels)) {
		return true, nil
	}
	internal, external, err := secrets(ctx, r.Live, c, t.key.Namespace)
	if err == nil {
		doubt, err = r.use(t, c, internal, external)
	}
	var broken *secretError
	if errors.As(err, &broken) {
		r.broken(t, broken)
		return true, nil
	}
	if doubt || err != nil {
		return true, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	want, _ := t.state.Want(standing, r.now()) // runs go on meanwhile
	return want != probe.Down || t.config != c, nil
}

// carryOut writes a plan's acts, all at once, and tells of them.
func (r *TargetReconciler) carryOut(ctx context.Context, t *target, in probe.Scaling, plan probe.Plan) error {
	if len(plan.Acts) == 0 {
		r.Troubles.Settled(nameOf(t.key).String())
		return nil
	}
	var admitted actuate.AdmittedProber
	if harmful(plan) {
		if admitted = r.Observer.admissionFor(ctx, in.Config); !admitted.Valid() {
			return errNotAdmitted
		}
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
	return r.settle(t, in.Config, errs)
}

// settle tells of trouble. That someone else wrote first is none: the object is read again.
func (r *TargetReconciler) settle(t *target, c *probe.Config, errs []error) error {
	policy := status.Policy{UID: c.UID, NamespacedName: c.Key()}
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
	r.Observer.enqueueConfig(c.Key())
	return failed
}

// remember keeps how far the scaling came.
func (r *TargetReconciler) remember(t *target, in probe.Scaling, plan probe.Plan, held probe.Permit) {
	t.mu.Lock()
	told := t.held.Reason == held.Reason && sameFindings(t.findings, plan.Findings)
	t.held, t.findings = held, plan.Findings
	if held.Allowed {
		t.flow = plan.Flow
	}
	if plan.Done && len(plan.Acts) == 0 {
		t.flow = probe.Flow{}
	}
	if in.Want == probe.Down {
		t.episode = in.Episode
	}
	turned := t.restored != (in.Withdrawn && plan.Done)
	t.restored = in.Withdrawn && plan.Done && len(t.former) == 0
	t.mu.Unlock()
	if !told || turned {
		r.Observer.enqueueConfig(t.key.Config)
	}
}

// dismiss drops a target that the config doesn't ask for any more, once it has back what was taken.
func (r *TargetReconciler) dismiss(t *target) {
	t.mu.Lock()
	over := t.departed && t.restored
	at := t.fleetKey()
	t.mu.Unlock()
	if !over {
		return
	}
	r.Observer.targets.forget(t.key)
	r.Observer.fleet().Forget(at)
	r.Observer.enqueueTarget(t.key, 0)
	r.Observer.enqueueConfig(t.key.Config)
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
func (r *TargetReconciler) goOn(in probe.Scaling, plan probe.Plan) time.Time {
	stopped := !plan.Flow.StoppedAt.IsZero()
	if plan.Done && len(plan.Acts) == 0 || stopped || in.Want == probe.Hold && !in.Withdrawn {
		return time.Time{} // the next run goes on
	}
	return in.Now.Add(flowLook)
}
