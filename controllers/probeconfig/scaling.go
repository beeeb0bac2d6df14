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

// doubtLook is how soon is looked again at a doubt that passes by itself.
const doubtLook = 500 * time.Millisecond

// allowed is the permit of what nothing holds.
var allowed = probe.Permit{Allowed: true}

// scale brings a target's dependents nearer to where its latest run wants them, and says when to go on.
func (r *TargetReconciler) scale(ctx context.Context, is *probe.Target, may permission, place namespace) (again time.Time, err error) {
	now, server := r.now(), r.Observer.Facts.Server.Now()
	in := is.Scaling(may.state, place.hibernated, now, server)
	if is.AtRest(&in) {
		r.tell(is, probe.Rested{})
		r.dismiss(is)
		return time.Time{}, nil
	}
	// All targets may fail at once, and ask again at each run: what would be held back whatever its objects are like isn't read.
	if in.Want == probe.Down && !is.MayOwe() {
		if held := r.mayGoDown(is, r.Observer.fleet().MayGoDown, now); !held.Allowed {
			r.tell(is, probe.Planned{In: in, Plan: probe.PlanScaling(in), Held: held})
			return held.LookAgain, nil
		}
	}
	objects, unread := r.look(ctx, is, in)
	if unread != nil {
		return time.Time{}, errors.Join(unread, r.giveBackFormer(ctx, is, in, objects))
	}
	looked := in.Want
	if in = is.Scaling(may.state, place.hibernated, now, server); in.Objects == nil || in.Want != looked {
		return now, nil // the config changed meanwhile, or where to scale, for which half a view may not do
	}
	plan := probe.PlanScaling(in)
	admitted, held, doubt := r.permit(ctx, is, may, in, &plan)
	if !held.Allowed {
		plan.Hold()
	}
	if held.Allowed || len(plan.Acts) > 0 {
		err = r.carryOut(ctx, is, plan.Acts, admitted)
	}
	r.Report.putBack(is, is.Findings, plan.Findings, now)
	r.tell(is, probe.Planned{In: in, Plan: plan, Held: held})
	r.dismiss(is)
	if !held.Allowed {
		return held.LookAgain, errors.Join(doubt, err)
	}
	return plan.NextLook(&in), err
}

// giveBackFormer gives back what was taken from objects that the config doesn't name any more, and does nothing else.
func (r *TargetReconciler) giveBackFormer(ctx context.Context, is *probe.Target, in probe.Scaling, objects []probe.Object) error {
	in.Want, in.Objects = probe.Hold, objects
	plan := probe.PlanScaling(in)
	if len(plan.Acts) == 0 {
		return nil
	}
	return r.carryOut(ctx, is, plan.Acts, actuate.AdmittedProber{})
}

// look reads the objects of a Scaling, all at once. When some that the config names can't be read that is an error, unless they are to
// be given back: nothing is taken upon half a view, and everything is given back that can be.
func (r *TargetReconciler) look(ctx context.Context, is *probe.Target, in probe.Scaling) (objects []probe.Object, unread error) {
	refs := slices.Collect(in.Refs())
	objects = make([]probe.Object, len(refs))
	var reading sync.WaitGroup
	for i, ref := range refs {
		reading.Go(func() { objects[i] = r.Reader.Read(ctx, is.Namespace, ref) })
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
		r.Troubles.Failed(keyOf(is).String(), unread, configOf(is))
	}
	r.tell(is, probe.Looked{In: in, Objects: objects, Half: unread != nil, Denied: denied})
	return objects, unread
}

// permit asks all that is asked before a plan is carried out. What holds it back without a reason is a doubt that passes by
// itself. An undo of everything isn't paced.
func (r *TargetReconciler) permit(ctx context.Context, is *probe.Target, may permission, in probe.Scaling, plan *probe.Plan) (admitted actuate.AdmittedProber, held probe.Permit, err error) {
	switch {
	case plan.Harmful() && !in.Confirmed():
		r.Prober.Hasten(keyOf(is), in.Now) // the run wakes us
		return admitted, probe.Permit{}, nil
	case plan.Harmful():
		if held = r.mayGoDown(is, r.Observer.fleet().PermitDown, in.Now); !held.Allowed {
			return admitted, held, nil
		}
		if admitted, held, err = r.mayTake(ctx, is, may, in, plan); held.Allowed {
			r.tell(is, probe.Taking{Acts: plan.Acts})
		}
		return admitted, held, err
	case in.Want == probe.Up && !in.Withdrawn && plan.Own > 0:
		return admitted, r.Observer.fleet().PermitUp(is.Key(), in.Now), nil
	}
	return admitted, allowed, nil
}

// mayGoDown asks the fleet, in its name, for a target of which nothing is in the way.
func (r *TargetReconciler) mayGoDown(is *probe.Target, ask func(probe.TargetKey, time.Time) probe.Permit, now time.Time) probe.Permit {
	if held := is.MayGoDown(); !held.Allowed {
		return held
	}
	return ask(is.Key(), now)
}

// mayTake asks all that is asked just before replicas are taken; what the decision rests on is read live.
func (r *TargetReconciler) mayTake(ctx context.Context, is *probe.Target, may permission, in probe.Scaling, plan *probe.Plan) (admitted actuate.AdmittedProber, held probe.Permit, err error) {
	doubt := probe.Permit{LookAgain: in.Now.Add(doubtLook)}
	if !r.Observer.indexed(in.Config, *plan) {
		r.Observer.requestConfig(in.Config.Key())
		return admitted, doubt, nil
	}
	if held, err = r.vital(ctx, is, plan); err != nil || !held.Allowed {
		return admitted, held, err
	}
	if still, err := r.confirm(ctx, is, may); err != nil || !still {
		return admitted, doubt, err
	}
	if admitted = r.Observer.admissionFor(ctx, in.Config); !admitted.Valid() {
		return admitted, doubt, nil
	}
	return admitted, allowed, nil
}

// admissionFor is the admission that covers what is taken from a target now; its zero value when there is none.
func (o *Observer) admissionFor(ctx context.Context, c *probe.Config) actuate.AdmittedProber {
	config, ok := o.policies.Admission(ctx, c.Key(), c.UID)
	if !ok {
		return actuate.AdmittedProber{}
	}
	return config.Admitted
}

// heldAsVital: what would be scaled down serves the probed API server, or runs Autohealer.
const heldAsVital probe.Reason = "Vital"

// Vital says why an object must not be scaled down as things are now, "" for nothing. Servers, as host:port, are those that
// are probed.
type Vital interface {
	Vital(ctx context.Context, namespace string, servers []string, ref probe.Ref) (why string, err error)
}

// vital asks once more of all dependents what the rules asked when the config was written. A target with such an object isn't scaled
// down at all, as the rule refuses the whole config.
func (r *TargetReconciler) vital(ctx context.Context, is *probe.Target, plan *probe.Plan) (held probe.Permit, err error) {
	if r.Vital == nil {
		return allowed, nil
	}
	servers, dependents := r.Prober.Servers(keyOf(is)), is.Config.Dependents
	whys, errs := make([]string, len(dependents)), make([]error, len(dependents))
	var asking sync.WaitGroup
	for i, d := range dependents {
		asking.Go(func() { whys[i], errs[i] = r.Vital.Vital(ctx, is.Namespace, servers, d.Ref) })
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return held, err
	}
	held = allowed
	for i, why := range whys {
		if why != "" {
			ref := dependents[i].Ref
			plan.Findings = append(plan.Findings, probe.Finding{Ref: ref, Reason: heldAsVital, Message: why + "; nothing is scaled down here"})
			held = probe.Permit{Reason: heldAsVital, Message: ref.String() + ": " + why} // the next run asks again
		}
	}
	return held, nil
}

// confirm reads live what the decision to take replicas rests on, and says whether it is so still. If not, what is new is on its way.
func (r *TargetReconciler) confirm(ctx context.Context, is *probe.Target, may permission) (still bool, err error) {
	var ns corev1.Namespace
	switch err := r.Live.Get(ctx, types.NamespacedName{Name: is.Namespace}, &ns); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read namespace %s before scaling down in it: %w", is.Namespace, err)
	}
	c, place := is.Config, readNamespace(&ns)
	if place.ending || place.hibernated || c.Namespaces != nil && !c.Namespaces.Matches(labels.Set(place.labels)) {
		return false, nil
	}
	if anew, err := r.renew(ctx, is); anew || err != nil {
		return false, err
	}
	want, _ := is.State.Want(may.state, r.now()) // runs go on meanwhile
	return want == probe.Down && is.Config == c, nil
}

// carryOut writes a plan's acts, all at once, and tells of them. Those that take replicas need an admission.
func (r *TargetReconciler) carryOut(ctx context.Context, is *probe.Target, acts []probe.Act, admitted actuate.AdmittedProber) error {
	name, errs := keyOf(is).String(), make([]error, len(acts))
	if len(acts) == 0 {
		r.Troubles.Settled(name)
		return nil
	}
	var acting sync.WaitGroup
	for i, act := range acts {
		acting.Go(func() {
			errs[i] = r.Scales.Apply(ctx, actuate.ScaleChange{Config: is.Config, Namespace: is.Namespace, Act: act}, admitted)
			r.Report.acted(is, act, errs[i], r.now())
		})
	}
	acting.Wait()
	var failed error
	for _, err := range errs {
		switch {
		case err == nil:
			r.Troubles.Written(name, configOf(is))
			continue
		case !errors.Is(err, actuate.ErrStale): // that someone else wrote first is no trouble
			failed = errors.Join(failed, err)
		}
		r.tell(is, probe.Doubted{})
	}
	if failed != nil {
		r.Troubles.Failed(name, failed, configOf(is))
	}
	r.Observer.requestConfig(is.Config.Key())
	return failed
}

func configOf(is *probe.Target) policy.Ref {
	return policy.Ref{UID: is.Config.UID, NamespacedName: is.Config.Key()}
}

// dismiss drops a target that the config doesn't ask for any more, once it has back what was taken. Those of a config that is
// deleted go with it, and say until then what they leave.
func (r *TargetReconciler) dismiss(is *probe.Target) {
	if !is.Dismissed() || !r.Observer.drop(keyOf(is)) {
		return
	}
	r.Report.left(is, r.now())
	r.Observer.requestTarget(keyOf(is))
	r.Observer.requestConfig(is.Config.Key())
}

// drop forgets a target if nothing asks for it.
func (o *Observer) drop(key probing.Key) bool {
	o.telling.Lock()
	defer o.telling.Unlock()
	is, ok := o.targets.get(key)
	if !ok || !is.Dismissed() {
		return false
	}
	if j, stored := o.policies.Get(is.Config.Key()); stored && j.Object.DeletionTimestamp != nil {
		return false
	}
	o.targets.forget(key)
	o.fleet().Forget(is.Key())
	return true
}
