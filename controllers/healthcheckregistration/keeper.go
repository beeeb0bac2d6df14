package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/policy"
)

// kindWait lies between two looks at a kind that can't be read.
const kindWait = 10 * time.Second

// keeper keeps registrations' finalizers and statuses. The acting is the TargetReconciler's.
type keeper struct {
	*Observer
	// Live reads from the API server, past the cache.
	Live    client.Reader
	Layouts *checking.Layouts

	quiet quiet
}

func (k *keeper) steps() policy.Steps[*v1alpha1.HealthCheckRegistration] {
	return policy.Steps[*v1alpha1.HealthCheckRegistration]{
		New: func() *v1alpha1.HealthCheckRegistration { return &v1alpha1.HealthCheckRegistration{} }, Describe: k.describe, Left: k.left,
		Gone: func(registration types.NamespacedName) {
			forgetStates(registration.Name)
			k.quiet.forget(registration.Name)
		},
	}
}

// describe gathers what the status tells, once this generation is judged and the rules are known by which it was.
func (k *keeper) describe(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, left policy.Left) (is policy.Description[*v1alpha1.HealthCheckRegistration], err error) {
	stored, ok := k.policies.Current(hcr)
	if !ok {
		is.Skip = true
		return is, nil
	}
	st, again := k.observe(ctx, stored)
	st.left = left
	is.Again, is.After = again, hcr.DeepCopy()
	is.After.Status = statusOf(hcr, st)
	gaugeStates(hcr.Name, is.After.Status)
	now := k.Facts.Clock.Now()
	if wait := k.quiet.wait(hcr.Name, &hcr.Status, &is.After.Status, now); wait > 0 {
		is.Skip, is.Again = true, max(again, wait)
		return is, nil
	}
	is.Stored = func(written bool) {
		if written {
			k.quiet.written(hcr.Name, now)
		}
	}
	return is, nil
}

// observe gathers what a status tells of a registration, and when to look again: zero for when something changes.
func (k *keeper) observe(ctx context.Context, stored storedRegistration) (st state, again time.Duration) {
	uid := stored.Object.UID
	st = state{storedRegistration: stored, trouble: k.policies.Troubles.Get(uid), summary: k.book.summary(uid)}
	st.breaker, st.broken = k.book.breaker(uid)
	switch err := k.Watches.Watch(ctx, stored.Read.kind, true); {
	case errors.Is(err, checking.ErrUnread):
		return st, policy.Delay
	case err != nil:
		st.unusable = err
		return st, kindWait
	}
	st.synced = true
	if reg := stored.Read.registration; reg != nil {
		st.complete = k.book.complete(uid, func() []checking.Target { return k.selected(ctx, reg) })
	}
	if st.unusable = k.fits(ctx, stored.Read); st.unusable != nil {
		return st, kindWait
	}
	// The kind may have come after the registration, and a target that is awaited may be gone before it is looked at.
	if informed := k.inform(ctx, client.ObjectKeyFromObject(stored.Object)); !informed || !st.complete {
		return st, kindWait
	}
	return st, 0
}

// fits says why a kind's objects can't have what a registration writes; nil when they can.
func (k *keeper) fits(ctx context.Context, of reading) error {
	layout, err := k.Layouts.Of(ctx, of.kind)
	if err != nil || of.registration == nil {
		return err
	}
	why := of.registration.Unwritable(layout)
	if why == "" {
		return nil
	}
	k.Layouts.Doubt(of.kind) // somebody may mend the definition
	if layout.Problem != "" {
		why += "; write output: RegistrationOnly"
	}
	return fmt.Errorf("%s of %s can't have conditions: %s", of.kind.Kind, of.kind.GroupVersion(), why)
}

func decides(reg *registration.Registration, conditionType string) bool {
	for _, c := range reg.Checks {
		if c.ConditionType == conditionType {
			return true
		}
	}
	return false
}
