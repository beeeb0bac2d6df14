package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// doubtRetry is how soon is looked again at a doubt that passes by itself.
const doubtRetry = 500 * time.Millisecond

// allowed is the permit of what nothing holds.
var allowed = probe.Permit{Allowed: true}

// scale brings a target's dependents nearer to where its latest run wants them, and says when to go on.
func (r *TargetReconciler) scale(ctx context.Context, target *probe.Target, perm permission, nsState namespaceState) (again time.Time, err error) {
	now, server := r.now(), r.Observer.Facts.Server.Now()
	in := target.Scaling(perm.state, nsState.hibernated, now, server)
	if target.NothingToDo(&in) {
		r.apply(target, probe.NothingToScale{})
		r.removeTarget(target)
		return time.Time{}, nil
	}
	// All targets may fail at once, and ask again at each run: what would be held back whatever its objects are like isn't read.
	if in.Want == probe.Down && !target.MayHaveScaledDown() {
		if permit := r.canScaleDown(target, r.Observer.fleet().CanScaleDown, now); !permit.Allowed {
			r.apply(target, probe.PlanApplied{Scaling: in, Plan: probe.PlanScaling(in), Permit: permit})
			return permit.RequeueAt, nil
		}
	}
	objects, unread := r.readDependents(ctx, target, in)
	if unread != nil {
		return time.Time{}, errors.Join(unread, r.restoreRemoved(ctx, target, in, objects))
	}
	checked := in.Want
	if in = target.Scaling(perm.state, nsState.hibernated, now, server); in.Objects == nil || in.Want != checked {
		return now, nil // the config changed meanwhile, or where to scale, for which half a view may not do
	}
	plan := probe.PlanScaling(in)
	admitted, permit, doubt := r.acquirePermit(ctx, target, perm, in, &plan)
	if !permit.Allowed {
		plan.DropHeldActs()
	}
	if permit.Allowed || len(plan.Acts) > 0 {
		err = r.carryOut(ctx, target, plan.Acts, admitted)
	}
	r.Report.reportScaledByOthers(target, target.Findings, plan.Findings, now)
	r.apply(target, probe.PlanApplied{Scaling: in, Plan: plan, Permit: permit})
	r.removeTarget(target)
	if !permit.Allowed {
		return permit.RequeueAt, errors.Join(doubt, err)
	}
	return plan.NextCheck(&in), err
}

// restoreRemoved gives back what was taken from objects that the config doesn't name any more, and does nothing else.
func (r *TargetReconciler) restoreRemoved(ctx context.Context, target *probe.Target, in probe.Scaling, objects []probe.Object) error {
	in.Want, in.Objects = probe.Hold, objects
	plan := probe.PlanScaling(in)
	if len(plan.Acts) == 0 {
		return nil
	}
	return r.carryOut(ctx, target, plan.Acts, actuate.AdmittedProber{})
}

// readDependents reads the objects of a Scaling, all at once. When some that the config names can't be read that is an error, unless they are to
// be given back: nothing is taken upon half a view, and everything is given back that can be.
func (r *TargetReconciler) readDependents(ctx context.Context, target *probe.Target, in probe.Scaling) (objects []probe.Object, unread error) {
	refs := slices.Collect(in.Refs())
	objects = make([]probe.Object, len(refs))
	var reading sync.WaitGroup
	for i, ref := range refs {
		reading.Go(func() { objects[i] = r.Reader.Read(ctx, target.Namespace, ref) })
	}
	reading.Wait()
	denied := true
	for i, o := range objects[:len(in.Config.Dependents)] {
		if o.Unread != "" && in.Want != probe.Up {
			denied = denied && o.Denied
			unread = errors.Join(unread, fmt.Errorf("%s: %s", refs[i], o.Unread))
		}
	}
	if unread != nil {
		r.Errors.RecordFailure(keyOf(target).String(), unread, configOf(target))
	}
	r.apply(target, probe.DependentsRead{Scaling: in, Objects: objects, Partial: unread != nil, Denied: denied})
	return objects, unread
}

// acquirePermit asks all that is asked before a plan is carried out. What holds it back without a reason is a doubt that passes by
// itself. An undo of everything isn't paced.
func (r *TargetReconciler) acquirePermit(ctx context.Context, target *probe.Target, perm permission, in probe.Scaling, plan *probe.Plan) (admitted actuate.AdmittedProber, permit probe.Permit, err error) {
	switch {
	case plan.ScalesDown() && !in.Fresh():
		r.Prober.RunBy(keyOf(target), in.Now) // the run wakes us
		return admitted, probe.Permit{}, nil
	case plan.ScalesDown():
		if permit = r.canScaleDown(target, r.Observer.fleet().AcquireScaleDown, in.Now); !permit.Allowed {
			return admitted, permit, nil
		}
		if admitted, permit, err = r.confirmScaleDown(ctx, target, perm, in, plan); permit.Allowed {
			r.apply(target, probe.ScaleDownStarting{Acts: plan.Acts})
		}
		return admitted, permit, err
	case in.Want == probe.Up && !in.Withdrawn && plan.Named > 0:
		return admitted, r.Observer.fleet().AcquireScaleUp(target.Key(), in.Now), nil
	}
	return admitted, allowed, nil
}

// canScaleDown asks the fleet, in its name, for a target of which nothing is in the way.
func (r *TargetReconciler) canScaleDown(target *probe.Target, ask func(probe.TargetKey, time.Time) probe.Permit, now time.Time) probe.Permit {
	if permit := target.CanScaleDown(); !permit.Allowed {
		return permit
	}
	return ask(target.Key(), now)
}

// confirmScaleDown asks all that is asked just before replicas are taken; what the decision rests on is read live.
func (r *TargetReconciler) confirmScaleDown(ctx context.Context, target *probe.Target, perm permission, in probe.Scaling, plan *probe.Plan) (admitted actuate.AdmittedProber, permit probe.Permit, err error) {
	doubt := probe.Permit{RequeueAt: in.Now.Add(doubtRetry)}
	if !r.Observer.kindsInStatus(in.Config, *plan) {
		r.Observer.requestConfig(in.Config.Key())
		return admitted, doubt, nil
	}
	if permit, err = r.protected(ctx, target, plan); err != nil || !permit.Allowed {
		return admitted, permit, err
	}
	if still, err := r.stillHolds(ctx, target, perm); err != nil || !still {
		return admitted, doubt, err
	}
	if config, ok := r.Observer.policies.Admission(ctx, in.Config.Key(), in.Config.UID); ok && config.Admitted.Valid() {
		return config.Admitted, allowed, nil
	}
	return admitted, doubt, nil
}

// heldProtected: what would be scaled down serves the probed API server, or runs Autohealer.
const heldProtected probe.Reason = "Vital"

// Protection says why an object must not be scaled down as things are now, "" for nothing. Servers, as host:port, are those that
// are probed.
type Protection interface {
	Protected(ctx context.Context, namespace string, servers []string, ref probe.Ref) (why string, err error)
}

// protected asks once more of all dependents what the rules asked when the config was written. A target with such an object isn't scaled
// down at all, as the rule refuses the whole config.
func (r *TargetReconciler) protected(ctx context.Context, target *probe.Target, plan *probe.Plan) (permit probe.Permit, err error) {
	if r.Protection == nil {
		return allowed, nil
	}
	servers, dependents := r.Prober.Servers(keyOf(target)), target.Config.Dependents
	whys, errs := make([]string, len(dependents)), make([]error, len(dependents))
	var asking sync.WaitGroup
	for i, d := range dependents {
		asking.Go(func() { whys[i], errs[i] = r.Protection.Protected(ctx, target.Namespace, servers, d.Ref) })
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return permit, err
	}
	permit = allowed
	for i, why := range whys {
		if why != "" {
			ref := dependents[i].Ref
			plan.Findings = append(plan.Findings, probe.Finding{Ref: ref, Reason: heldProtected, Message: why + "; nothing is scaled down here"})
			permit = probe.Permit{Reason: heldProtected, Message: ref.String() + ": " + why} // the next run asks again
		}
	}
	return permit, nil
}

// stillHolds reads live what the decision to take replicas rests on, and says whether it is so still. If not, what is new is on its way.
func (r *TargetReconciler) stillHolds(ctx context.Context, target *probe.Target, perm permission) (still bool, err error) {
	var ns corev1.Namespace
	switch err := r.Live.Get(ctx, types.NamespacedName{Name: target.Namespace}, &ns); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read namespace %s before scaling down in it: %w", target.Namespace, err)
	}
	c, nsState := target.Config, readNamespace(&ns)
	if nsState.terminating || nsState.hibernated || c.Namespaces != nil && !c.Namespaces.Matches(labels.Set(nsState.labels)) {
		return false, nil
	}
	if again, err := r.readCredentials(ctx, target); again || err != nil {
		return false, err
	}
	want, _ := target.State.Want(perm.state, r.now()) // runs go on meanwhile
	return want == probe.Down && target.Config == c, nil
}

// carryOut writes a plan's acts, all at once, and reports them. Those that take replicas need an admission.
func (r *TargetReconciler) carryOut(ctx context.Context, target *probe.Target, acts []probe.Act, admitted actuate.AdmittedProber) error {
	name, errs := keyOf(target).String(), make([]error, len(acts))
	if len(acts) == 0 {
		r.Errors.Clear(name)
		return nil
	}
	var acting sync.WaitGroup
	for i, act := range acts {
		acting.Go(func() {
			errs[i] = r.Scales.Apply(ctx, actuate.ScaleChange{Config: target.Config, Namespace: target.Namespace, Act: act}, admitted)
			r.Report.reportAct(target, act, errs[i], r.now())
		})
	}
	acting.Wait()
	var failed error
	for _, err := range errs {
		switch {
		case err == nil:
			r.Errors.RecordSuccess(name, configOf(target))
			continue
		case !errors.Is(err, actuate.ErrStale): // that someone else wrote first is no trouble
			failed = errors.Join(failed, err)
		}
		r.apply(target, probe.WriteUncertain{})
	}
	if failed != nil {
		r.Errors.RecordFailure(name, failed, configOf(target))
	}
	r.Observer.requestConfig(target.Config.Key())
	return failed
}

func configOf(target *probe.Target) policy.Ref {
	return policy.Ref{UID: target.Config.UID, NamespacedName: target.Config.Key()}
}

// removeTarget drops a target that the config doesn't ask for any more, once it has back what was taken. Those of a config that is
// deleted go with it, and say until then what they leave.
func (r *TargetReconciler) removeTarget(target *probe.Target) {
	if !target.Removable() || !r.Observer.drop(keyOf(target)) {
		return
	}
	r.Report.reportUnrestored(target, r.now())
	r.Observer.requestTarget(keyOf(target))
	r.Observer.requestConfig(target.Config.Key())
}

// drop forgets a target if nothing asks for it.
func (o *Observer) drop(key probing.Key) bool {
	o.assigning.Lock()
	defer o.assigning.Unlock()
	target, ok := o.targets.get(key)
	if !ok || !target.Removable() {
		return false
	}
	if j, stored := o.policies.Get(target.Config.Key()); stored && j.Object.DeletionTimestamp != nil {
		return false
	}
	o.targets.forget(key)
	o.fleet().Forget(target.Key())
	return true
}
