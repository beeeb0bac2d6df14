package healthcheck

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/retry"
)

// reconciler keeps the conditions of targets.
type reconciler struct {
	*Registration
	reader client.Reader
	scheme *runtime.Scheme
	runner *runner
	writer *writer
	// delegated are the condition types that are left to HealthCheckRegistrations, by the target's name, as seen last.
	delegated sync.Map
}

// Reconcile checks one target. It says when the next look is due also where something failed.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	target, suspended, err := r.read(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if target != nil {
		r.writer.breaker.checkReset(ctx, target) // a suspended one may still say that it be annotated
	}
	if target == nil || suspended {
		r.writer.breaker.forget(ctx, request.NamespacedName)
		r.runner.refs.forget(request.NamespacedName, r.checks)
	}
	switch {
	case target == nil:
		r.delegated.Delete(request.NamespacedName)
		r.writer.conflicts.Forget(request.String())
		r.runner.shoots.Forget(request.Namespace) // another target's next check connects anew
		return reconcile.Result{}, nil
	case suspended: // that it isn't any more may depend on what no event tells of
		return r.requeueAfter(time.Time{}), nil
	}
	again, err := r.evaluate(ctx, target)
	return r.requeueAfter(again), err
}

// requeueAfter has the target evaluated again at a deadline, or after the period. What only that asks for waits for all that somebody else does:
// with thousands of targets there is always one whose period is over.
func (r *reconciler) requeueAfter(deadline time.Time) reconcile.Result {
	result := reconcile.Result{RequeueAfter: retry.RequeueAfter(r.syncPeriod, deadline, r.clock.Now())}
	if deadline.IsZero() {
		result.Priority = new(handler.LowPriority)
	}
	return result
}

// read gives the target from the cache, and whether it isn't to be judged now; nil when it is gone, or no target.
func (r *reconciler) read(ctx context.Context, key types.NamespacedName) (target *unstructured.Unstructured, suspended bool, err error) {
	found := r.newTarget()
	if err := r.reader.Get(ctx, key, found); err != nil || found.GetDeletionTimestamp() != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	suspended = r.suspended != nil && r.suspended(found)
	plain, err := asJSON(found, r.kind)
	if err != nil || !r.selects(plain) {
		return nil, false, err
	}
	return plain, suspended, nil
}

// list gives all objects of the kind, as the cache has them: they aren't to be changed.
func (r *reconciler) list(ctx context.Context) (objects []client.Object, err error) {
	kind := r.kind.GroupVersion().WithKind(r.kind.Kind + "List")
	var into client.ObjectList = &unstructured.UnstructuredList{}
	into.GetObjectKind().SetGroupVersionKind(kind)
	if _, plain := r.newTarget().(*unstructured.Unstructured); !plain { // typed ones have an informer of their own
		known, err := r.scheme.New(kind)
		if err != nil {
			return nil, err
		}
		into = known.(client.ObjectList)
	}
	if err := r.reader.List(ctx, into, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return objects, meta.EachListItem(into, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
}

// selects says whether the registration is about this object.
func (r *Registration) selects(target *unstructured.Unstructured) bool {
	extension, _, _ := unstructured.NestedString(target.Object, "spec", "type")
	class, _, _ := unstructured.NestedString(target.Object, "spec", "class")
	return (r.extension == "" || extension == r.extension) &&
		(len(r.classes) == 0 || slices.Contains(r.classes, cmp.Or(class, "shoot")))
}

// conditionChecks is what the checks of one condition type say. Confirm gives their results by what is there now; nil where these are so.
type conditionChecks struct {
	in      health.Input
	confirm func() []health.Result
}

// evaluate runs the checks and writes each condition as soon as all of its own have come back, then removes those that are to go: of each,
// whatever becomes of the others. It gives when a verdict changes without news; zero when none does.
func (r *reconciler) evaluate(ctx context.Context, target *unstructured.Unstructured) (requeueAt time.Time, err error) {
	by := map[string][]check{}
	for _, c := range r.checks {
		if !health.Owns(target, c.conditionType) {
			by[c.conditionType] = append(by[c.conditionType], c)
		}
	}
	r.logDelegated(ctx, target)
	all := make(chan conditionChecks, len(by))
	for conditionType, checks := range by {
		seen := target
		go func() { all <- r.runChecks(ctx, seen, conditionType, checks) }()
	}
	var errs []error
	write := func(g conditionChecks) (gone bool) {
		g.in.Target = target
		after, at, err := r.writer.write(ctx, g.in, g.confirm)
		if errs = append(errs, err); after != nil {
			target = after
		}
		requeueAt = health.Earlier(requeueAt, at)
		return err == nil && after == nil
	}
	for range by {
		if g := <-all; ctx.Err() == nil && write(g) {
			return time.Time{}, nil
		}
	}
	for _, conditionType := range r.remove {
		if ctx.Err() == nil && write(conditionChecks{in: health.Input{Remove: []string{conditionType}}}) {
			return time.Time{}, nil
		}
	}
	r.writer.breaker.closeIfClear(ctx)
	return requeueAt, errors.Join(errs...)
}

// logDelegated tells, when that changes, which condition types a HealthCheckRegistration decides on the target: they are left alone.
func (r *reconciler) logDelegated(ctx context.Context, target *unstructured.Unstructured) {
	delegated := slices.DeleteFunc(health.Owned(target), func(owned string) bool {
		return !slices.ContainsFunc(r.checks, func(c check) bool { return c.conditionType == owned })
	})
	key, are := client.ObjectKeyFromObject(target), strings.Join(delegated, ",")
	for _, conditionType := range delegated {
		r.writer.breaker.state.Release(key.String(), conditionType)
	}
	if are == "" {
		if _, was := r.delegated.LoadAndDelete(key); was {
			log.FromContext(ctx).Info("No HealthCheckRegistration decides these conditions any more: they are checked here")
		}
	} else if was, _ := r.delegated.Swap(key, are); was != are {
		log.FromContext(ctx).Info("HealthCheckRegistrations decide conditions, which are left alone", "conditionTypes", are, "annotation", health.OwnedConditions)
	}
}

// runChecks runs the checks of a condition type. What the cache has may be old: only what is there now turns a condition False. That is asked
// here, where it holds up no other condition, and again by the writer, which may find the target, or the breaker, as they weren't seen.
func (r *reconciler) runChecks(ctx context.Context, target *unstructured.Unstructured, conditionType string, checks []check) conditionChecks {
	key := client.ObjectKeyFromObject(target)
	results := r.runner.runAll(ctx, r.runner.seed, key, checks)
	g := conditionChecks{in: health.Input{Target: target, Results: map[string][]health.Result{conditionType: results}}}
	g.confirm = func() []health.Result { return r.runner.confirm(ctx, key, checks, results) }
	if r.writer.turnsFalse(g.in) {
		g.in.Results[conditionType], g.confirm = g.confirm(), nil
	}
	return g
}
