package probeconfig

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

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

// mayTake asks all that is asked just before replicas are taken. Without an admission none are: what holds them back is told,
// and when nothing does it is a doubt that passes by itself.
func (r *TargetReconciler) mayTake(ctx context.Context, t *target, p permission, in probe.Scaling, plan *probe.Plan) (admitted actuate.AdmittedProber, held probe.Permit, err error) {
	if !r.Observer.indexed(in.Config, *plan) {
		r.Observer.requestConfig(t.key.Config)
		return admitted, probe.Permit{Allowed: true}, nil
	}
	if held, err = r.vital(ctx, t, in.Config, plan); err != nil || !held.Allowed {
		return admitted, held, err
	}
	if doubt, err := r.confirm(ctx, t, in.Config, p.state); err != nil || doubt {
		return admitted, held, err
	}
	return r.Observer.admissionFor(ctx, in.Config), held, nil
}

// placeBack gives back the place under the cap that a target took for replicas which were not taken. What it took before still
// counts.
func (r *TargetReconciler) placeBack(t *target, in probe.Scaling) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Observer.fleet().ObserveDown(t.fleetKey(), t.owes(in.Config, in.Objects))
}

// confirm reads live what the decision to take replicas rests on; doubt says that it isn't so any more. Then nothing is
// taken, and what is new is on its way.
func (r *TargetReconciler) confirm(ctx context.Context, t *target, c *probe.Config, may lifecycle.State) (doubt bool, err error) {
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
	want, _ := t.state.Want(may, r.now()) // runs go on meanwhile
	return want != probe.Down || t.config != c, nil
}
