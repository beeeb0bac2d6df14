package probeconfig

import (
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

const (
	// flowLook is how soon is looked again at what is being given back, or at a doubt that passes by itself.
	flowLook = 500 * time.Millisecond
	// stuckLook is how soon is looked again at what nothing can be done about here: someone must give a right, or take an
	// annotation away.
	stuckLook = 10 * time.Second
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
)

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
	key := keyOf(request.NamespacedName)
	t := r.Observer.targets.get(key)
	if t == nil {
		r.Prober.Remove(key)
		r.Troubles.Settled(request.String())
		return reconcile.Result{}, nil
	}
	place, exists := r.Observer.place(key.Namespace)
	if !exists && !r.Observer.synced.Load() {
		return reconcile.Result{RequeueAfter: policy.Delay}, nil
	}
	if !exists || place.ending {
		r.end(t)
		return reconcile.Result{}, nil
	}
	r.weigh(t)
	p := r.Observer.permission(t)
	secretsDue, supplyErr := r.supply(ctx, t, p, place)
	scalingDue, scaleErr := r.scale(ctx, t, p, place)
	if r.Observer.permission(t) != p { // it depends on what was found
		r.Observer.requestTarget(key)
	}
	return r.at(secretsDue, scalingDue), errors.Join(supplyErr, scaleErr) // what is refused of one dependent is no reason to leave others late
}

// weigh tells the fleet whether a target counts for others.
func (r *TargetReconciler) weigh(t *target) {
	acts, known := r.Observer.acts(t)
	t.mu.Lock()
	at := t.fleetKey()
	t.mu.Unlock()
	if known && r.Observer.fleet().Acts(at, acts, r.now()) {
		r.Observer.requestConfigs() // its breaker holds them all
	}
}

// end drops a target whose namespace is gone or being deleted, and with it everything that we scaled there. One that came back
// just then is looked at soon.
func (r *TargetReconciler) end(t *target) {
	r.Observer.telling.Lock()
	defer r.Observer.telling.Unlock()
	if r.Observer.stands(t.key.Namespace) {
		return
	}
	r.Prober.Remove(t.key)
	r.Troubles.Settled(nameOf(t.key).String())
	t.mu.Lock()
	r.Observer.fleet().Forget(t.fleetKey())
	t.reset(r.now())
	t.secrets, t.former, t.left, t.restored = supply{}, nil, nil, true
	t.objects, t.objectsOf = slices.Repeat([]probe.Object{{Missing: true}}, len(t.config.Dependents)), t.config
	departed := t.departed
	t.mu.Unlock()
	if _, exists := r.Observer.place(t.key.Namespace); !exists && departed {
		r.Observer.targets.forget(t.key)
	}
	r.Observer.requestConfig(t.key.Config)
}

// supply keeps the Prober's idea of a target right, and says when to read its Secrets again.
func (r *TargetReconciler) supply(ctx context.Context, t *target, p permission, place namespace) (again time.Time, err error) {
	switch {
	case p.probes == stop || place.hibernated:
		r.halt(t)
		return time.Time{}, nil
	case p.probes == leave:
		return time.Time{}, nil
	}
	now := r.now()
	t.mu.Lock()
	c, due := t.config, t.secrets.dueAt(t.unusable.Class == "")
	known := t.secrets.config == c || t.secrets.config == nil && t.unusable.Class != ""
	t.mu.Unlock()
	if known && now.Before(due) {
		return due, nil
	}
	internal, external, err := secrets(ctx, r.Live, c, t.key.Namespace)
	if err == nil {
		_, err = r.use(t, c, internal, external)
	}
	var broken *secretError
	if err != nil && !errors.As(err, &broken) {
		return time.Time{}, err // whatever runs goes on with what it has
	}
	if broken != nil {
		r.broken(t, broken)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.secrets.dueAt(t.unusable.Class == ""), nil
}

// halt ends a target's probes; what they counted is of the past.
func (r *TargetReconciler) halt(t *target) {
	r.Prober.Remove(t.key)
	t.mu.Lock()
	ran := t.secrets.config != nil || t.unusable.Class != ""
	t.reset(r.now())
	t.secrets, t.unusable = supply{}, probe.Outcome{}
	r.Observer.fleet().Unprobed(t.fleetKey())
	t.mu.Unlock()
	if ran {
		r.Observer.requestConfig(t.key.Config)
	}
}

// use gives the Prober what it probes with; changed says that it is something else than before. What other Secrets led to
// says nothing about what these lead to.
func (r *TargetReconciler) use(t *target, c *probe.Config, internal, external probing.Credentials) (changed bool, err error) {
	now := r.now()
	t.mu.Lock()
	was := t.secrets
	is := supply{internal: internal.Version(), external: external.Version(), config: c, readAt: now}
	first := c.FirstRun(t.seed(), now)
	changed = was.internal != is.internal || was.external != is.external
	if changed && was.config != nil { // a run is due now, to learn what the new ones lead to
		t.reset(now)
		first = now
	}
	wasUnusable := t.unusable.Class != ""
	t.unusable, t.secrets = probe.Outcome{}, is
	t.mu.Unlock()
	if wasUnusable || changed {
		r.Observer.requestConfig(t.key.Config)
	}
	if !changed && was.config == c {
		return false, nil
	}
	target := probing.Target{Internal: internal, External: external, Timeout: c.Timeout, NodeLeases: c.Leases}
	err = refused(c, t.key.Namespace, r.Prober.Set(t.key, target, first))
	if changed {
		t.mu.Lock()
		t.reset(r.now()) // a run may have begun meanwhile, with the old ones
		t.mu.Unlock()
	}
	return changed, err
}

// broken ends the probes of a target whose Secrets can't be used. What was counted before says nothing any more.
func (r *TargetReconciler) broken(t *target, err *secretError) {
	r.Prober.Remove(t.key)
	t.mu.Lock()
	told := t.unusable == err.outcome
	if t.unusable.Class == "" {
		t.unusableSince = r.now()
	}
	t.reset(r.now())
	t.secrets, t.unusable = supply{readAt: r.now()}, err.outcome
	r.Observer.fleet().Unprobed(t.fleetKey())
	t.mu.Unlock()
	if !told {
		r.Observer.requestConfig(t.key.Config)
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
