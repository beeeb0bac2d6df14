package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
)

// AdmittedChecks is a HealthCheckRegistration that the rules admitted.
type AdmittedChecks = guard.Validated[*v1alpha1.HealthCheckRegistration]

// ConditionWrite is one condition of one target to be written, or removed.
type ConditionWrite struct {
	// Target as it is stored, as far as is known.
	Target *unstructured.Unstructured
	// Planned is the target that the step was planned from: a plan's earlier writes give it anew, with what others wrote meanwhile. Default:
	// Target.
	Planned *unstructured.Unstructured
	Layout  health.Layout
	Step    health.Step
	// Deciders are the registrations whose checks decide the condition, or ask for its removal; none for one that nothing
	// decides any more.
	Deciders []*registration.Registration
	// Admitted are their admissions.
	Admitted []AdmittedChecks
}

// Conditions writes conditions on the targets of HealthCheckRegistrations, and the record of which are Autohealer's.
type Conditions struct {
	Client  client.Client
	Current Current
	// Live reads a target anew that others changed meanwhile. Default: it isn't, and has to be planned anew.
	Live client.Reader
	// Leads says whether this process may act at all. Default: it may.
	Leads func() bool
	// Acts takes the audit trail: one line an act.
	Acts logr.Logger
}

// Apply carries out one write, and gives the target as it is then. A condition that isn't in the target's record is claimed
// first, and one that others wrote is left alone. After an error it gives the target as far as it came.
func (c *Conditions) Apply(ctx context.Context, w ConditionWrite) (*unstructured.Unstructured, error) {
	target, kind := w.Target, w.Step.Condition.Type
	owned := health.Owns(target, kind)
	claims := !owned && !w.Step.Remove
	if err := c.covered(ctx, w); err != nil {
		return target, err
	}
	if claims {
		claimed, err := c.claimNew(ctx, w)
		if err != nil {
			return target, err
		}
		target = claimed
	}
	after, err := c.write(ctx, target, w)
	if err == nil || !Certain(err) {
		c.record(w, err)
	}
	if err != nil {
		if claims && superseded(err) {
			err = errors.Join(err, c.disclaim(ctx, after, &w.Step.Condition))
		}
		return target, err
	}
	if owned && w.Step.Remove {
		return c.claim(ctx, after, kind, false)
	}
	return after, nil
}

// superseded says whether a write failed because of others', who may have made the condition theirs. A claim isn't taken back after
// any other failure: the next try needs it, and two writes a try, each of which has the target looked at again, would never let it
// wait.
func superseded(err error) bool { return errors.Is(err, ErrStale) || apierrors.IsConflict(err) }

// covered finds what allows a write, if the target is what it was planned from: the admissions of all that decide it, still current, or the target's
// record.
func (c *Conditions) covered(ctx context.Context, w ConditionWrite) error {
	kind := w.Step.Condition.Type
	heals := !w.Step.Remove && w.Step.Previous == health.False && w.Step.Condition.Status == health.True
	switch what := fmt.Sprintf("condition %s of %s", kind, w.Target.GetName()); {
	case w.Planned != nil && !samePlan(w.Target, w.Planned, kind):
		return fmt.Errorf("%s was planned from an older state: %w", what, ErrStale)
	case health.Ours(w.Target, kind) && (heals || w.Step.Remove):
		return nil
	case w.foreign():
		return fmt.Errorf("%s is someone else's: %w", what, ErrNotValidated)
	case len(w.Deciders) == 0:
		return fmt.Errorf("%s: no registration decides it: %w", what, ErrNotValidated)
	}
	for _, reg := range w.Deciders {
		if err := c.coveredBy(ctx, w, reg); err != nil {
			return err
		}
	}
	return nil
}

// foreign says whether the condition is someone else's. One that isn't ours may only be taken off, if it has the form of checks.
func (w ConditionWrite) foreign() bool {
	present := health.Find(w.Target, w.Step.Condition.Type)
	if present == nil || health.Ours(w.Target, w.Step.Condition.Type) {
		return false
	}
	return !w.Step.Remove || !present.WrittenByChecks()
}

// coveredBy says whether a registration is admitted, and still what was.
func (c *Conditions) coveredBy(ctx context.Context, w ConditionWrite, reg *registration.Registration) error {
	if !slices.ContainsFunc(w.Admitted, func(v AdmittedChecks) bool {
		return v.Enforces() && v.UID() == reg.UID && v.Generation() == reg.Generation
	}) {
		return fmt.Errorf("condition %s of %s for HealthCheckRegistration %s: %w", w.Step.Condition.Type, w.Target.GetName(), reg.Name, ErrNotValidated)
	}
	return confirm(ctx, c.Current, "HealthCheckRegistration", types.NamespacedName{Name: reg.Name}, reg.UID, reg.Generation)
}

// maxAttempts at a write while others write the same status all the time; then the target is planned anew.
const maxAttempts = 8

// write puts the condition on the target, or takes it off, as long as others changed something else meanwhile.
func (c *Conditions) write(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	return c.whileSame(ctx, target, w.Step.Condition.Type, func(target *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return c.send(ctx, target, w)
	})
}

// whileSame makes a write again from what is stored by now, where others wrote meanwhile, as long as a condition is as it was. It gives the
// target as it was seen last.
func (c *Conditions) whileSame(
	ctx context.Context, target *unstructured.Unstructured, conditionType string, write func(*unstructured.Unstructured) (*unstructured.Unstructured, error),
) (*unstructured.Unstructured, error) {
	for attempts := 1; ; attempts++ {
		after, err := write(target)
		if !mayBeStale(err) {
			return after, err
		}
		fresh, changed := c.reread(ctx, target)
		switch {
		case !changed:
			return target, err
		case fresh == nil:
			return target, fmt.Errorf("%w: %w", ErrStale, err)
		case attempts == maxAttempts, !samePlan(fresh, target, conditionType):
			return fresh, fmt.Errorf("%w: %w", ErrStale, err)
		}
		target = fresh
	}
}

// mayBeStale says whether an error is what a target gives that changed meanwhile, or is gone. An admission webhook may refuse in the same
// way, and so does a kind that lost its status subresource.
func mayBeStale(err error) bool {
	taken := apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
	return stale(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) && !taken
}

// reread gives the target as it is stored, and whether that is something else than what was seen; nil where it is gone or going, or that
// can't be known.
func (c *Conditions) reread(ctx context.Context, target *unstructured.Unstructured) (fresh *unstructured.Unstructured, changed bool) {
	if c.Live == nil {
		return nil, true
	}
	fresh = &unstructured.Unstructured{}
	fresh.SetGroupVersionKind(target.GroupVersionKind())
	if c.Live.Get(ctx, client.ObjectKeyFromObject(target), fresh) != nil || fresh.GetUID() != target.GetUID() || fresh.GetDeletionTimestamp() != nil {
		return nil, true
	}
	return fresh, fresh.GetResourceVersion() != target.GetResourceVersion()
}

// samePlan says whether a target is still what a write of that condition was planned from.
func samePlan(fresh, seen *unstructured.Unstructured, conditionType string) bool {
	return health.Owns(fresh, conditionType) == health.Owns(seen, conditionType) &&
		health.Find(fresh, conditionType).Equal(health.Find(seen, conditionType)) &&
		hold.Of(fresh.GetAnnotations()).Same(hold.Of(seen.GetAnnotations()))
}

// send writes by apply where conditions are a map by type, each with a field manager of its own, else by a patch that fails when the list
// isn't any more what was read. What is removed is always removed so: by apply only that would go which nobody else has written,
// and an entry would stay that has no status, or all of it.
func (c *Conditions) send(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	if w.Layout.Map && !w.Step.Remove {
		return c.apply(ctx, target, w)
	}
	return c.patch(ctx, target, w)
}

// apply writes a condition in a map, if the target is still as it was seen. Whoever else has written it, as a controller that patches the
// list as it was before its own work, has it from then on, too: then it is taken back, if it is ours.
func (c *Conditions) apply(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	kind := w.Step.Condition.Type
	if err := c.leads(target, kind); err != nil {
		return target, err
	}
	try := func(options ...client.SubResourceApplyOption) (*unstructured.Unstructured, error) {
		applied := health.ApplyObject(target, w.Step.Condition, w.Step.Shape)
		options = append(options, client.FieldOwner("autohealer-"+kind))
		return applied, c.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...)
	}
	after, err := try()
	if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		if !health.Ours(target, kind) {
			return target, fmt.Errorf("someone else writes condition %s of %s, too: %w", kind, target.GetName(), err)
		}
		after, err = try(client.ForceOwnership)
	}
	if err != nil {
		return target, fmt.Errorf("apply condition %s of %s: %w", kind, target.GetName(), err)
	}
	return after, nil
}

func (c *Conditions) patch(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	kind := w.Step.Condition.Type
	patch, err := w.Step.Patch(target)
	if err != nil || patch == nil {
		return target, err
	}
	if err := c.leads(target, kind); err != nil {
		return target, err
	}
	after := target.DeepCopy()
	if err := c.Client.Status().Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("autohealer")); err != nil {
		return target, fmt.Errorf("write condition %s of %s: %w", kind, target.GetName(), err)
	}
	return after, nil
}

func (c *Conditions) leads(target *unstructured.Unstructured, conditionType string) error {
	if c.Leads != nil && !c.Leads() {
		return fmt.Errorf("write condition %s of %s: this replica may no longer be the leader: %w", conditionType, target.GetName(), ErrStale)
	}
	return nil
}

// record writes the audit line of a write, which unconfirmed leaves in doubt.
func (c *Conditions) record(w ConditionWrite, unconfirmed error) {
	condition, target := &w.Step.Condition, w.Target
	act := Act{
		Verb: "SetCondition", Reason: condition.Reason, PolicyKind: "HealthCheckRegistration",
		TargetKind: target.GetKind(), Target: client.ObjectKeyFromObject(target), TargetUID: target.GetUID(), Part: condition.Type,
		Trigger: condition.LastTransition, Unconfirmed: unconfirmed,
	}
	if w.Step.Remove {
		act.Verb, act.Reason = "RemoveCondition", "NoLongerChecked"
	}
	if len(w.Deciders) > 0 {
		reg := w.Deciders[0]
		act.Policy, act.PolicyUID, act.PolicyGeneration = types.NamespacedName{Name: reg.Name}, reg.UID, reg.Generation
		if i := slices.IndexFunc(w.Admitted, func(v AdmittedChecks) bool { return v.UID() == reg.UID }); i >= 0 {
			act.RuleSet = w.Admitted[i].RuleSetHash()
		}
	}
	act.record(c.Acts, "Changed a target's condition", "conditionType", condition.Type, "before", string(w.Step.Previous), "after", string(condition.Status))
}
