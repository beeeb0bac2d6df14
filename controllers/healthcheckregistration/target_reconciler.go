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
	// unreadWait lies between two looks while a kind is being read.
	unreadWait = time.Second
	// kindJitter spreads those at all objects of a kind that can't be read: each asks the API server anew.
	kindJitter = 0.5
)

// TargetReconciler keeps the conditions of targets.
type TargetReconciler struct {
	Observer   *Observer
	Checker    *checking.Checker
	Layouts    *checking.Layouts
	Conditions *actuate.Conditions
	Troubles   *policy.Troubles
	Report     *Reporter

	contests health.Contests
}

// Reconcile looks at one target.
func (r *TargetReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.Observer.synced.Load() {
		return reconcile.Result{RequeueAfter: unreadWait}, nil
	}
	target, reads := targetOf(request.NamespacedName), r.Observer.Watches.ReadsNow()
	object, in, err := r.read(ctx, target)
	if err != nil {
		return later(err)
	}
	if object == nil {
		r.forget(target) //nolint:contextcheck // mirrors of shoots outlive who asks for them first
		return reconcile.Result{}, nil
	}
	namespace, err := r.Observer.labelsOf(ctx, object.GetNamespace())
	if err != nil {
		return reconcile.Result{}, err
	}
	l := r.look(target, object, in, namespace)
	if reads != r.Observer.Watches.ReadsNow() { // one of the deciders may read more of the object than was kept of it
		return reconcile.Result{RequeueAfter: again}, nil
	}
	l.follow() //nolint:contextcheck // the same
	return l.keep(ctx)
}

// later tries again, soon where a kind is just being read.
func later(err error) (reconcile.Result, error) {
	if errors.Is(err, checking.ErrUnread) {
		return reconcile.Result{RequeueAfter: unreadWait}, nil
	}
	return reconcile.Result{}, err
}

// look begins a look at a target. Whether there is doubt is asked before who decides: a registration that is judged while the checks
// run isn't among the deciders, and its conditions aren't nobody's.
func (r *TargetReconciler) look(target checking.Target, object *unstructured.Unstructured, in versions, namespace labels.Set) *look {
	doubt := r.Observer.inDoubt(target.Kind)
	return &look{r: r, target: target, object: object, deciders: r.Observer.deciders(object, in, namespace), doubt: doubt}
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

// inOthers gives a target in those of the other versions that deciders look at. One that only unjudged registrations name decides
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
		case errors.Is(err, checking.ErrUnread):
			return nil, err
		case err != nil: // which the registration's status tells; what it wrote stays, and the others go on
			continue
		case found == nil || found.GetUID() != target.GetUID():
			return nil, checking.ErrUnread
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
	r.contests.Forget(nameOf(target).String())
	r.Troubles.Settled(nameOf(target).String())
	r.Observer.drop(target, nil)
}

// look is one look at one target.
type look struct {
	r        *TargetReconciler
	target   checking.Target
	object   *unstructured.Unstructured
	deciders []decider
	// doubt: when the deciders were asked, there may have been others.
	doubt bool
	// problem says why a condition isn't written, and contested is a condition type that somebody else keeps writing.
	problem, contested string
}

// follow has the target looked at again when what its checks look at changes.
func (l *look) follow() {
	var by []checking.Interest
	for _, d := range l.deciders {
		if d.Registration != nil && d.State != lifecycle.Deleted {
			by = append(by, checking.Interest{Registration: d.Registration, Object: d.object})
		}
	}
	l.r.Checker.Follow(l.target, by...)
}

// keep checks the target, and writes what follows.
func (l *look) keep(ctx context.Context) (reconcile.Result, error) {
	if l.idle() {
		l.r.Troubles.Settled(nameOf(l.target).String())
		l.note(plan{}, outcome{})
		return reconcile.Result{}, nil
	}
	layout, err := l.r.Layouts.Of(ctx, l.object.GroupVersionKind())
	if err != nil { // which the registration's status tells
		return reconcile.Result{RequeueAfter: wait.Jitter(kindWait, kindJitter)}, nil //nolint:nilerr // one target's error would be that of all
	}
	plan := l.confirmed(ctx, layout)
	is := l.act(ctx, layout, plan)
	if !plan.unread { // else what was found before is told
		l.note(plan, is)
	}
	result := reconcile.Result{RequeueAfter: l.after(plan)}
	switch {
	case errors.Is(is.ended, actuate.ErrStale):
		result.RequeueAfter = again
	case is.ended != nil: // what was refused is tried again with the rest
		return reconcile.Result{}, is.ended
	case len(is.refused) > 0 && !is.leaves(plan): // nothing else is due
		result.RequeueAfter = 0
	case plan.LookAgain.IsZero() && !plan.unread: // nothing but time asks for it
		result.Priority = new(kube.LowPriority)
	}
	return result, errors.Join(is.refused...)
}

// idle says whether no registration is about the target, and nothing of theirs is left on it.
func (l *look) idle() bool { return len(l.deciders) == 0 && len(health.Owned(l.object)) == 0 }

// leaves says whether a plan has conditions whose write wasn't refused: these are looked at in time.
func (o outcome) leaves(p plan) bool {
	for t := range p.Verdicts {
		if !o.kept[t] {
			return true
		}
	}
	return false
}

// again is when to look at a target that changed meanwhile: once the news of it are here.
const again = 100 * time.Millisecond

// after is when to look again: at a deadline, or after the shortest sync period.
func (l *look) after(p plan) time.Duration {
	var period time.Duration
	for _, d := range l.deciders {
		if d.Registration != nil && (period == 0 || d.SyncPeriod < period) {
			period = d.SyncPeriod
		}
	}
	if p.unread {
		return unreadWait
	}
	now := l.r.Observer.Facts.Clock.Now()
	period = retry.After(period, p.LookAgain, now)
	if at := hold.Of(l.object.GetAnnotations()).RequeueAt(now, time.Time{}); !at.IsZero() {
		period = min(period, at.Sub(now)+kube.PastDeadline)
	}
	return period
}

// note takes in what was found, for each registration's status.
func (l *look) note(p plan, is outcome) {
	now := map[types.UID]bool{}
	for place := range l.deciders {
		d := &l.deciders[place]
		if d.Registration == nil || d.State == lifecycle.Deleted {
			continue
		}
		uid := d.UID
		if now[uid] = true; d.State.IsFrozen() { // it isn't asked
			continue
		}
		found := entry{problem: l.problem, contested: l.contested}
		verdicts := p.Verdicts
		if alone, ok := p.Alone[place]; ok {
			verdicts = alone.Verdicts
		}
		page := l.r.Observer.book.page(uid)
		if page == nil {
			continue
		}
		for _, t := range d.ConditionTypes() {
			if v, ok := verdicts[t]; ok {
				found.verdicts = append(found.verdicts, verdictOf(t, v))
			}
		}
		released := l.judged(place, p, verdicts, is, &page.flips)
		if page.note(l.target, found) || released {
			l.r.Observer.request(types.NamespacedName{Name: d.Name}, policy.Delay)
		}
	}
	l.r.Observer.drop(l.target, now)
}

// judged tells a registration's breaker what its conditions came to, and says whether something isn't in doubt any more.
func (l *look) judged(place int, p plan, verdicts map[string]health.Verdict, is outcome, flips *health.Flips) (released bool) {
	name := nameOf(l.target).String()
	for _, t := range l.deciders[place].ConditionTypes() {
		v, ok := verdicts[t]
		switch {
		case is.undone[t], ok && l.stays(place, p, t):
		case ok && l.holdsBack(place, p, t):
			released = flips.Judged(name, t, v) || released
		case ok, l.hasNoSay(place, p, t):
			released = flips.Release(name, t) || released
		}
	}
	return released
}

// stays says whether a condition is left as it is for now, though a registration decides it: one of its registrations may not act, or its kind takes
// no conditions.
func (l *look) stays(place int, p plan, conditionType string) bool {
	_, unwritten := p.Alone[place]
	by := l.by(p, conditionType)
	return unwritten && l.deciders[place].Writing() || anyHeld(by) && !onHold(by)
}

// holdsBack says whether a registration's breaker may hold a condition back: its checks find something, and not people hold the target.
func (l *look) holdsBack(place int, p plan, conditionType string) bool {
	_, alone := p.Alone[place]
	return !alone && p.said[place].Failing && !onHold(l.by(p, conditionType))
}

func onHold(deciders []decider) bool {
	return slices.ContainsFunc(deciders, func(d decider) bool { return d.Held })
}

// hasNoSay says whether a registration has nothing to say of a condition for as long as nobody changes that: its checks are suspended, or the
// condition is somebody else's. That it can't say for now isn't that.
func (l *look) hasNoSay(place int, p plan, conditionType string) bool {
	suspended := len(p.said) > 0 && p.said[place].Suspended && p.said[place].Problem == ""
	return suspended || health.Find(l.object, conditionType) != nil && !health.Ours(l.object, conditionType)
}

// drop forgets a target of all registrations but those that still select it, and asks for the statuses of the others.
func (o *Observer) drop(target checking.Target, but map[types.UID]bool) {
	for _, name := range o.book.drop(target, but) {
		o.request(types.NamespacedName{Name: name}, policy.Delay)
	}
}
