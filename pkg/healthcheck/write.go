package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// fieldOwner of the conditions.
const fieldOwner = "healthcheck"

// attempts at a write whose target changes meanwhile; then the whole check is run again, with back-off.
const attempts = 8

// writer puts conditions on targets.
type writer struct {
	client client.Client
	live   client.Reader
	shape  health.Shape
	clock  clock.PassiveClock
	// breaker holds back what turns False.
	breaker   *breaker
	conflicts health.WriteConflicts
	// codesDroppedAt is when codes were written and weren't there, in seconds since 1970. They would be missed, and written, at each evaluation.
	codesDroppedAt atomic.Int64
}

// codesDroppedTTL is for how long it is trusted that a kind keeps no codes: its definition may get them.
const codesDroppedTTL = time.Hour

func (w *writer) keepsCodes() bool {
	at := w.codesDroppedAt.Load()
	return at == 0 || w.clock.Since(time.Unix(at, 0)) >= codesDroppedTTL
}

// write writes what follows from the input's results, and touches no condition of others. Before a condition turns False, confirm gives its
// results by what is there now; nil when these are so. It gives the target as it is then; nil when it is gone. requeueAt is when the
// verdict changes without news; zero when it doesn't.
func (w *writer) write(ctx context.Context, in health.Input, confirm func() []health.Result) (target *unstructured.Unstructured, requeueAt time.Time, err error) {
	key := client.ObjectKeyFromObject(in.Target)
	var turned []string
	allowFalse := func(conditionType string, doubted bool) bool {
		if confirm != nil { // the breaker was closed just now
			return false
		}
		turned = append(turned, conditionType)
		return w.breaker.allowFalse(ctx, key, conditionType, doubted)
	}
	defer func() {
		if err != nil || target == nil {
			w.notWritten(key, turned, err == nil)
		}
	}()
	var refusal error
	for range attempts {
		if in = withoutOwned(in); len(in.Results)+len(in.Remove) == 0 {
			return in.Target, time.Time{}, nil
		}
		if confirm != nil && w.turnsFalse(in) {
			for conditionType := range in.Results {
				in.Results[conditionType] = confirm()
			}
			confirm = nil
		}
		plan := w.plan(in, allowFalse)
		if in.Target, refusal = w.apply(ctx, in.Target, plan.Steps); refusal == nil {
			return in.Target, w.breaker.recordVerdicts(key, plan), nil
		}
		if in.Target, err = w.reread(ctx, in.Target, refusal); err != nil || in.Target == nil {
			return nil, time.Time{}, err
		}
	}
	return nil, time.Time{}, fmt.Errorf("the target changed %d times meanwhile: %w", attempts, refusal)
}

// notWritten takes back that conditions of a target turned False: the write failed, or the target is gone.
func (w *writer) notWritten(target client.ObjectKey, turned []string, gone bool) {
	w.breaker.state.RevertFalse(target.String(), turned...)
	if gone {
		w.breaker.state.Forget(target.String())
		w.conflicts.Forget(target.String())
	}
}

// withoutOwned is the input without what a HealthCheckRegistration decides by now.
func withoutOwned(in health.Input) health.Input {
	in.Results = maps.Clone(in.Results)
	maps.DeleteFunc(in.Results, func(conditionType string, _ []health.Result) bool { return health.Owns(in.Target, conditionType) })
	in.Remove = slices.DeleteFunc(slices.Clone(in.Remove), func(conditionType string) bool { return health.Owns(in.Target, conditionType) })
	return in
}

func (w *writer) plan(in health.Input, allowFalse func(conditionType string, doubted bool) bool) health.Plan {
	in.Shape, in.Unsupported.Codes, in.AllowFalse, in.ResetHint = w.shape, !w.keepsCodes(), allowFalse, w.breaker.resetHint
	key, uid := client.ObjectKeyFromObject(in.Target).String(), in.Target.GetUID()
	in.CheckConflict = func(t string, found, next *health.Condition) (rewrites bool, until time.Time) {
		return w.conflicts.Check(key, uid, t, found, next, w.clock.Now())
	}
	return health.PlanTarget(in, w.clock.Now())
}

// turnsFalse says whether results turn a condition False that isn't so yet, and that isn't held back anyway.
func (w *writer) turnsFalse(in health.Input) bool {
	p := w.plan(in, func(string, bool) bool { return !w.breaker.open() })
	return slices.ContainsFunc(p.Steps, health.Step.TurnsFalse)
}

// reread gives the target as it is now, if a write was refused because it isn't as it was seen; nil when it is gone, or another one has
// its name. Else the error is why.
func (w *writer) reread(ctx context.Context, seen *unstructured.Unstructured, refusal error) (*unstructured.Unstructured, error) {
	missing := apierrors.IsNotFound(refusal)
	if !missing && !isStale(refusal) {
		return nil, refusal
	}
	now := untyped(seen.GroupVersionKind())
	switch err := w.live.Get(ctx, client.ObjectKeyFromObject(seen), now); {
	case apierrors.IsNotFound(err), err == nil && now.GetUID() != seen.GetUID():
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the target: %w", err)
	case missing:
		return nil, fmt.Errorf("the target is there, but has no status of its own to write: %w", refusal)
	case now.GetResourceVersion() == seen.GetResourceVersion(): // no race was lost: an admission webhook may refuse in the same way
		return nil, refusal
	}
	return now, nil
}

// apply gives the target as the last write left it. After an error it is the one that was given.
func (w *writer) apply(ctx context.Context, target *unstructured.Unstructured, steps []health.Step) (*unstructured.Unstructured, error) {
	for _, step := range steps {
		patch, err := step.Patch(target)
		if err != nil || patch == nil {
			return target, err
		}
		after := target.DeepCopy()
		if err := w.client.Status().Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
			return target, fmt.Errorf("write condition %s: %w", step.Condition.Type, err)
		}
		if err := w.checkStored(ctx, after, step); err != nil {
			return target, err
		}
		logChange(ctx, step)
		key, found := client.ObjectKeyFromObject(target).String(), health.Find(target, step.Condition.Type)
		stored := step.Result()
		if stored != nil && !w.keepsCodes() {
			stored.Codes = nil // as the API server has it
		}
		if w.conflicts.RecordWrite(key, target.GetUID(), step.Condition.Type, found, stored, w.clock.Now()) {
			log.FromContext(ctx).Info("Condition is corrected that somebody else writes, too; kubectl get -o yaml --show-managed-fields names the writer", "conditionType", step.Condition.Type)
		}
		target = after
	}
	return target, nil
}

// checkStored looks at what became of a write: an API server drops what the kind's schema doesn't have.
func (w *writer) checkStored(ctx context.Context, target *unstructured.Unstructured, step health.Step) error {
	if step.Remove {
		return nil
	}
	is := health.Find(target, step.Condition.Type)
	if is == nil {
		return fmt.Errorf("write condition %s: the API server dropped it, since the schema of %s has no such status.conditions", step.Condition.Type, target.GetKind())
	}
	if len(step.Condition.Codes) > 0 && len(is.Codes) == 0 {
		w.codesDroppedAt.Store(w.clock.Now().Unix())
		log.FromContext(ctx).Info("Codes aren't written for a while: the API server dropped them", "kind", target.GetKind(), "for", codesDroppedTTL.String())
	}
	return nil
}

func logChange(ctx context.Context, step health.Step) {
	if c := step.Condition; step.Remove {
		log.FromContext(ctx).Info("Condition removed", "conditionType", c.Type)
	} else if c.Status != step.Previous {
		log.FromContext(ctx).Info("Condition changed", "conditionType", c.Type, "status", c.Status, "before", step.Previous, "message", c.Message)
	}
}

// isStale: the API server refuses a patch whose guard doesn't hold as unprocessable, and one that lost a race as a conflict. What
// a schema or a policy refuses is unprocessable with causes.
func isStale(err error) bool {
	var refused apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &refused) {
		return apierrors.IsConflict(err)
	}
	details := refused.Status().Details
	return details == nil || len(details.Causes) == 0
}
