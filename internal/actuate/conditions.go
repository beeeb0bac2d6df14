package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// AdmittedChecks is a HealthCheckRegistration that the rules admitted.
type AdmittedChecks = guard.Validated[*v1alpha1.HealthCheckRegistration]

// ConditionWrite is one condition of one target to be written, or removed.
type ConditionWrite struct {
	Target *unstructured.Unstructured
	Layout health.Layout
	Step   health.Step
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
	owned := registration.Owns(target, kind)
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
			err = errors.Join(err, c.disclaim(ctx, after, kind))
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

// covered finds what allows a write: the admissions of all that decide it, still current, or the target's record.
func (c *Conditions) covered(ctx context.Context, w ConditionWrite) error {
	kind := w.Step.Condition.Type
	heals := !w.Step.Remove && w.Step.Before == health.False && w.Step.Condition.Status == health.True
	switch what := fmt.Sprintf("condition %s of %s", kind, w.Target.GetName()); {
	case registration.Ours(w.Target, kind) && (heals || w.Step.Remove):
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
	if present == nil || registration.Ours(w.Target, w.Step.Condition.Type) {
		return false
	}
	return !w.Step.Remove || !present.ByChecks()
}

// coveredBy says whether a registration is admitted, and still what was.
func (c *Conditions) coveredBy(ctx context.Context, w ConditionWrite, reg *registration.Registration) error {
	if !slices.ContainsFunc(w.Admitted, func(v AdmittedChecks) bool {
		return v.Enforces() && v.UID() == reg.UID && v.Generation() == reg.Generation
	}) {
		return fmt.Errorf("condition %s of %s for HealthCheckRegistration %s: %w", w.Step.Condition.Type, w.Target.GetName(), reg.Name, ErrNotValidated)
	}
	kind := v1alpha1.GroupVersion.WithKind("HealthCheckRegistration")
	err := c.Current.Check(ctx, kind, types.NamespacedName{Name: reg.Name}, reg.UID, reg.Generation)
	switch {
	case errors.Is(err, kube.ErrSuperseded):
		return &Unconfirmed{reg.UID, fmt.Errorf("%w: %w", ErrStale, err)}
	case err != nil:
		return &Unconfirmed{reg.UID, err}
	}
	return nil
}

// mostTries at a write while others write the same status all the time; then the target is planned anew.
const mostTries = 8

// write puts the condition on the target, or takes it off: by apply where conditions are a map by type, each with a field
// manager of its own, else by a patch that fails when the list isn't any more what was read. Then it is made again from what is
// stored by now, as long as that is the same in what the write was planned from.
func (c *Conditions) write(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	if w.Layout.Map {
		return target, c.apply(ctx, target, w)
	}
	for tries := 1; ; tries++ {
		after, err := c.patch(ctx, target, w)
		if !errors.Is(err, ErrStale) || c.Live == nil || tries == mostTries {
			return after, err
		}
		fresh, again := c.reread(ctx, target, w.Step.Condition.Type)
		if !again {
			return target, err
		}
		target = fresh
	}
}

// reread gives the target as it is stored, if it is still what a write of that condition was planned from.
func (c *Conditions) reread(ctx context.Context, target *unstructured.Unstructured, conditionType string) (*unstructured.Unstructured, bool) {
	fresh := &unstructured.Unstructured{}
	fresh.SetGroupVersionKind(target.GroupVersionKind())
	if c.Live.Get(ctx, client.ObjectKeyFromObject(target), fresh) != nil || fresh.GetUID() != target.GetUID() || fresh.GetDeletionTimestamp() != nil {
		return nil, false
	}
	same := registration.Owns(fresh, conditionType) == registration.Owns(target, conditionType) &&
		health.Find(fresh, conditionType).Equal(health.Find(target, conditionType)) &&
		hold.Of(fresh.GetAnnotations()).Same(hold.Of(target.GetAnnotations()))
	return fresh, same
}

func (c *Conditions) apply(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) error {
	kind, condition := w.Step.Condition.Type, &w.Step.Condition
	if w.Step.Remove {
		condition = nil
	}
	if err := c.leads(target, kind); err != nil {
		return err
	}
	applied := client.ApplyConfigurationFromUnstructured(health.Applied(target, condition, w.Layout.Shape))
	if err := c.Client.Status().Apply(ctx, applied, client.FieldOwner("autohealer-"+kind)); apierrors.IsConflict(err) {
		return fmt.Errorf("someone else writes condition %s of %s, too: %w", kind, target.GetName(), err)
	} else if err != nil {
		return conditionError("apply condition "+kind+" of", target, err)
	}
	return nil
}

func (c *Conditions) patch(ctx context.Context, target *unstructured.Unstructured, w ConditionWrite) (*unstructured.Unstructured, error) {
	kind := w.Step.Condition.Type
	patch, err := conditionPatch(target, w)
	if err != nil || patch == nil {
		return target, err
	}
	if err := c.leads(target, kind); err != nil {
		return target, err
	}
	after := target.DeepCopy()
	if err := c.Client.Status().Patch(ctx, after, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("autohealer")); err != nil {
		return target, conditionError("write condition "+kind+" of", target, err)
	}
	return after, nil
}

func (c *Conditions) leads(target *unstructured.Unstructured, conditionType string) error {
	if c.Leads != nil && !c.Leads() {
		return fmt.Errorf("write condition %s of %s: this replica no longer surely leads: %w", conditionType, target.GetName(), ErrStale)
	}
	return nil
}

func conditionPatch(target *unstructured.Unstructured, w ConditionWrite) ([]byte, error) {
	if w.Step.Remove {
		return health.Removal(target, w.Step.Condition.Type)
	}
	return health.Patch(target, w.Step.Condition, w.Layout.Shape)
}

// conditionError tells a target that changed meanwhile, or is gone, from what is wrong.
func conditionError(what string, target *unstructured.Unstructured, err error) error {
	if stale(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("%s %s: %w: %w", what, target.GetName(), ErrStale, err)
	}
	return fmt.Errorf("%s %s: %w", what, target.GetName(), err)
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
	act.record(c.Acts, "Changed a target's condition", "conditionType", condition.Type, "before", string(w.Step.Before), "after", string(condition.Status))
}
