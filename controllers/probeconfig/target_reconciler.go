package probeconfig

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// pastDeadline lets a deadline lie behind us when it is looked at.
const pastDeadline = time.Millisecond

// TargetReconciler keeps a target's probes going and scales its dependents.
type TargetReconciler struct {
	Observer *Observer
	Prober   *probing.Prober
	Reader   *actuate.ScaleReader
	Scales   *actuate.Scales
	// Vital is asked before anything is scaled down; nil: nobody is.
	Vital Vital
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Troubles *policy.Troubles
	Report   *Reporter
}

// Reconcile looks at one target.
func (r *TargetReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Observer.Facts.Timings.TargetLook())
	defer cancel()
	key := keyFrom(request.NamespacedName)
	is, ok := r.Observer.targets.get(key)
	if !ok {
		r.Prober.Remove(key)
		r.Troubles.Settled(request.String())
		return reconcile.Result{}, nil
	}
	place, exists := r.Observer.place(key.Namespace)
	if !exists && !r.Observer.synced.Load() {
		return reconcile.Result{RequeueAfter: policy.Delay}, nil
	}
	if !exists || place.ending {
		r.end(key)
		return reconcile.Result{}, nil
	}
	may := r.Observer.permission(&is)
	secretsDue, supplyErr := r.supply(ctx, &is, may, place)
	r.Observer.weigh(&is, place)
	scalingDue, scaleErr := r.scale(ctx, &is, may, place)
	if r.Observer.permission(&is) != may { // it depends on what was found
		r.Observer.requestTarget(key)
	}
	return r.at(secretsDue, scalingDue), errors.Join(supplyErr, scaleErr) // what is refused of one dependent is no reason to leave others late
}

// tell has the target learn what its pass came to. One that was dropped meanwhile goes on by itself.
func (r *TargetReconciler) tell(is *probe.Target, e probe.Event) {
	if now, _, ok := r.Observer.tell(keyOf(is), e); ok {
		*is = now
	} else {
		*is, _ = is.Next(e)
	}
}

// weigh tells the fleet whether a target counts for others, and whether it should be healthy.
func (o *Observer) weigh(is *probe.Target, place namespace) {
	untried := is.Supply.Probes() && !is.Works()
	o.fleet().Excuse(is.Key(), is.Config.Observe || is.Departed || untried || place.hibernated)
	if acts, known := o.acts(is); known && o.fleet().Acts(is.Key(), acts, o.Facts.Clock.Now()) {
		o.requestConfigs() // its breaker holds them all
	}
}

// end drops a target whose namespace is gone or being deleted, and with it everything that we scaled there. One that came back
// just then is looked at soon.
func (r *TargetReconciler) end(key probing.Key) {
	r.Observer.telling.Lock()
	defer r.Observer.telling.Unlock()
	if r.Observer.stands(key.Namespace) {
		return
	}
	r.Prober.Remove(key)
	r.Troubles.Settled(nameOf(key).String())
	is, _, _ := r.Observer.tell(key, probe.Ended{Since: r.now()})
	if _, exists := r.Observer.place(key.Namespace); !exists && is.Departed {
		r.Observer.targets.forget(key)
	}
}

func (r *TargetReconciler) now() time.Time { return r.Observer.Facts.Clock.Now() }

// at looks again at the earlier of two times; a zero one is never.
func (r *TargetReconciler) at(a, b time.Time) reconcile.Result {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		a = b
	}
	if a.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(0, a.Sub(r.now())) + pastDeadline}
}
