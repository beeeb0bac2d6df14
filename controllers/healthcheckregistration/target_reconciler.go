package healthcheckregistration

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/retry"
)

const (
	// syncRetry lies between two looks while a kind is being read.
	syncRetry = time.Second
	// kindJitter spreads those at all objects of a kind that can't be read: each asks the API server anew.
	kindJitter = 0.5
)

// TargetReconciler keeps the conditions of targets.
type TargetReconciler struct {
	Observer   *Observer
	Checker    *checking.Checker
	Layouts    *checking.Layouts
	Conditions *actuate.Conditions
	Errors     *policy.ErrorTracker
	Report     *Reporter

	conflicts health.WriteConflicts
}

// Reconcile looks at one target.
func (r *TargetReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.Observer.synced.Load() {
		return reconcile.Result{RequeueAfter: syncRetry}, nil
	}
	target, reads := targetOf(request.NamespacedName), r.Observer.Watches.ReadsVersion()
	object, in, err := r.read(ctx, target)
	if err != nil {
		return retryLater(err)
	}
	if object == nil {
		r.forget(target) //nolint:contextcheck // mirrors of shoots outlive who asks for them first
		return reconcile.Result{}, nil
	}
	namespace, err := r.Observer.labelsOf(ctx, object.GetNamespace())
	if err != nil {
		return reconcile.Result{}, err
	}
	l := r.newEvaluation(target, object, in, namespace)
	if reads != r.Observer.Watches.ReadsVersion() { // one of the registrations may read more of the object than was kept of it
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	l.watchRefs() //nolint:contextcheck // the same
	return l.reconcile(ctx)
}

// retryLater tries again, soon where a kind is just being read.
func retryLater(err error) (reconcile.Result, error) {
	if errors.Is(err, checking.ErrNotSynced) {
		return reconcile.Result{RequeueAfter: syncRetry}, nil
	}
	return reconcile.Result{}, err
}

// newEvaluation begins the evaluation of a target. Whether there is doubt is asked before who decides: a registration that is judged while the checks
// run isn't among the registrations, and its conditions aren't nobody's.
func (r *TargetReconciler) newEvaluation(target checking.Target, object *unstructured.Unstructured, in versions, namespace labels.Set) *evaluation {
	doubt := r.Observer.registrationsUnknown(target.Kind)
	return &evaluation{r: r, target: target, object: object, registrations: r.Observer.activeRegistrations(object, in, namespace), registrationsUnknown: doubt}
}

// versions are a target as it is in each version that a registration names and that can be read: of any other nothing is known.
type versions map[string]*unstructured.Unstructured

// read gives the target in the latest served version that a registration names, and in the others; nil when it is gone, or going.
func (r *TargetReconciler) read(ctx context.Context, target checking.Target) (object *unstructured.Unstructured, in versions, err error) {
	all := r.Observer.versionsOf(target.Kind)
	for i, version := range all {
		object, err = r.inVersion(ctx, target.Kind.WithVersion(version), target.Key)
		if checking.Unserved(err) {
			continue
		}
		if err == nil && object != nil {
			in, err = r.inOthers(ctx, object, all[i+1:])
		}
		if err != nil || object == nil {
			return nil, nil, err
		}
		in[version] = object
		return object, in, nil
	}
	return nil, nil, err
}

// inOthers gives a target in those of the other versions that registrations look at. One that only unjudged registrations name decides
// nothing yet, and mustn't hold up the rest.
func (r *TargetReconciler) inOthers(ctx context.Context, target *unstructured.Unstructured, others []string) (in versions, err error) {
	in = versions{}
	kind := target.GroupVersionKind().GroupKind()
	judged := r.Observer.judgedVersionsOf(kind)
	for _, version := range others {
		if !slices.Contains(judged, version) {
			continue
		}
		found, err := r.inVersion(ctx, kind.WithVersion(version), client.ObjectKeyFromObject(target))
		switch {
		case errors.Is(err, checking.ErrNotSynced):
			return nil, err
		case err != nil: // which the registration's status tells; what it wrote stays, and the others go on
			continue
		case found == nil || found.GetUID() != target.GetUID():
			return nil, checking.ErrNotSynced
		}
		in[version] = found
	}
	return in, nil
}

func (r *TargetReconciler) inVersion(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	if err := r.Observer.Watches.Watch(ctx, kind, true); err != nil {
		return nil, err
	}
	object, err := r.Observer.Watches.Get(ctx, kind, key)
	if err != nil || object.GetDeletionTimestamp() != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

func (r *TargetReconciler) forget(target checking.Target) {
	r.Checker.Follow(target)
	r.conflicts.Forget(nameOf(target).String())
	r.Errors.Clear(nameOf(target).String())
	r.Observer.dropTarget(target, nil)
}

// evaluation is one evaluation of one target.
type evaluation struct {
	r             *TargetReconciler
	target        checking.Target
	object        *unstructured.Unstructured
	registrations []activeRegistration
	// registrationsUnknown: when the registrations were asked, there may have been others.
	registrationsUnknown bool
	// problem says why a condition isn't written, and contested is a condition type that somebody else keeps writing.
	problem, contested string
}

// watchRefs has the target evaluated again when what its checks look at changes.
func (l *evaluation) watchRefs() {
	var by []checking.Interest
	for _, d := range l.registrations {
		if d.Registration != nil && d.State != lifecycle.Deleted {
			by = append(by, checking.Interest{Registration: d.Registration, Object: d.object})
		}
	}
	l.r.Checker.Follow(l.target, by...)
}

// reconcile checks the target, and writes what follows.
func (l *evaluation) reconcile(ctx context.Context) (reconcile.Result, error) {
	if l.isUnmanaged() {
		l.r.Errors.Clear(nameOf(l.target).String())
		l.recordResults(plan{}, outcome{})
		return reconcile.Result{}, nil
	}
	layout, err := l.r.Layouts.Of(ctx, l.object.GroupVersionKind())
	if err != nil { // which the registration's status tells
		return reconcile.Result{RequeueAfter: wait.Jitter(kindRetry, kindJitter)}, nil //nolint:nilerr // one target's error would be that of all
	}
	plan := l.confirmedPlan(ctx, layout)
	is := l.execute(ctx, layout, plan)
	if !plan.notSynced { // else what was found before is reported
		l.recordResults(plan, is)
	}
	result := reconcile.Result{RequeueAfter: l.requeueAfter(plan)}
	switch {
	case errors.Is(is.stoppedBy, actuate.ErrStale):
		result.RequeueAfter = staleRetry
	case is.stoppedBy != nil: // what was refused is tried again with the rest
		return reconcile.Result{}, is.stoppedBy
	case len(is.refused) > 0 && !is.hasUnrefused(plan): // nothing else is due
		result.RequeueAfter = 0
	case plan.RequeueAt.IsZero() && !plan.notSynced: // nothing but time asks for it
		result.Priority = new(kube.LowPriority)
	}
	return result, errors.Join(is.refused...)
}

// isUnmanaged says whether no registration is about the target, and nothing of theirs is left on it.
func (l *evaluation) isUnmanaged() bool {
	return len(l.registrations) == 0 && len(health.Owned(l.object)) == 0
}

// hasUnrefused says whether a plan has conditions whose write wasn't refused: these are evaluated in time.
func (o outcome) hasUnrefused(p plan) bool {
	for t := range p.Verdicts {
		if o.notDone[t] == nil {
			return true
		}
	}
	return false
}

// staleRetry is when to evaluate a target that changed meanwhile: once the news of it are here.
const staleRetry = 100 * time.Millisecond

// requeueAfter is when to evaluate again: at a deadline, or after the shortest sync period.
func (l *evaluation) requeueAfter(p plan) time.Duration {
	var period time.Duration
	for _, d := range l.registrations {
		if d.Registration != nil && (period == 0 || d.SyncPeriod < period) {
			period = d.SyncPeriod
		}
	}
	if p.notSynced {
		return syncRetry
	}
	now := l.r.Observer.Facts.Clock.Now()
	period = retry.RequeueAfter(period, p.RequeueAt, now)
	if at := hold.Of(l.object.GetAnnotations()).RequeueAt(now, time.Time{}); !at.IsZero() {
		period = min(period, at.Sub(now)+kube.PastDeadline)
	}
	return period
}

// recordResults takes in what was found, for each registration's status.
func (l *evaluation) recordResults(p plan, is outcome) {
	now := map[types.UID]bool{}
	for index := range l.registrations {
		d := &l.registrations[index]
		if d.Registration == nil || d.State == lifecycle.Deleted {
			continue
		}
		uid := d.UID
		if d.State == lifecycle.Unrecorded { // its finalizer waited until targets can be read
			l.r.Observer.request(types.NamespacedName{Name: d.Name}, staleRetry)
		}
		if now[uid] = true; d.State.IsFrozen() { // it isn't asked
			continue
		}
		found := targetResult{problem: l.problem, contested: l.contested}
		verdicts := p.Verdicts
		if alone, ok := p.Unwritten[index]; ok {
			verdicts = alone.Verdicts
		}
		results := l.r.Observer.results.results(uid)
		if results == nil {
			continue
		}
		for _, t := range d.ConditionTypes() {
			if v, ok := verdicts[t]; ok {
				found.verdicts = append(found.verdicts, conditionResultOf(t, v))
			}
		}
		released := l.updateBreaker(index, p, verdicts, is, &results.breaker)
		if results.record(l.target, found) || released {
			l.r.Observer.request(types.NamespacedName{Name: d.Name}, policy.Delay)
		}
	}
	l.r.Observer.dropTarget(l.target, now)
}

// dropTarget forgets a target of all registrations but those that still select it, and asks for the statuses of the others.
func (o *Observer) dropTarget(target checking.Target, but map[types.UID]bool) {
	for _, name := range o.results.drop(target, but) {
		o.request(types.NamespacedName{Name: name}, policy.Delay)
	}
}
