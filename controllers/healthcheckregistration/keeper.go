package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/policy"
)

// kindRetry lies between two looks at a kind that can't be read.
const kindRetry = 10 * time.Second

// statusKeeper keeps registrations' finalizers and statuses. The acting is the TargetReconciler's.
type statusKeeper struct {
	*Observer
	// Live reads from the API server, past the cache.
	Live    client.Reader
	Layouts *checking.Layouts
}

func (k *statusKeeper) steps() policy.Steps[*v1alpha1.HealthCheckRegistration] {
	return policy.Steps[*v1alpha1.HealthCheckRegistration]{
		New: func() *v1alpha1.HealthCheckRegistration { return &v1alpha1.HealthCheckRegistration{} }, Describe: k.describe, Remaining: k.unreleased,
		Gone: func(registration types.NamespacedName) { forgetStates(registration.Name) }, KeepsFinalizer: k.readsTargets,
	}
}

// readsTargets says whether targets can be read. A registration whose targets never could has written nothing on them, and is deleted without
// the rights that it never had.
func (k *statusKeeper) readsTargets(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration) bool {
	return k.Watches.Watch(ctx, kindOf(hcr), true) == nil
}

// describe gathers what the status reports, once this generation is judged and the rules are known by which it was.
func (k *statusKeeper) describe(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, remaining policy.Remaining) (description policy.Description[*v1alpha1.HealthCheckRegistration], err error) {
	stored, ok := k.policies.Current(hcr)
	results := k.results.results(hcr.UID)
	if !ok || results == nil {
		description.Skip = true
		return description, nil
	}
	st, again := k.observe(ctx, stored, results)
	st.unreleased = remaining
	description.RequeueAfter, description.After = again, hcr.DeepCopy()
	description.After.Status = statusOf(hcr, st)
	gaugeStates(hcr.Name, description.After.Status)
	now := k.Facts.Clock.Now()
	if wait := results.statusDelay(&hcr.Status, &description.After.Status, now); wait > 0 {
		description.Skip, description.RequeueAfter = true, max(again, wait)
		return description, nil
	}
	description.Stored = func(written bool) {
		if written {
			results.statusWritten(now)
		}
	}
	return description, nil
}

// observe gathers what a status reports of a registration, and when to evaluate again: zero for when something changes.
func (k *statusKeeper) observe(ctx context.Context, stored storedRegistration, results *registrationResults) (st statusInput, again time.Duration) {
	st = statusInput{storedRegistration: stored, writeErrors: k.policies.Errors.Get(stored.Object.UID), summary: results.summary()}
	st.breaker, st.breakerOpen = results.breaker.Opening()
	switch err := k.Watches.Watch(ctx, stored.Read.kind, true); {
	case errors.Is(err, checking.ErrNotSynced):
		return st, policy.Delay
	case err != nil:
		st.kindError = err
		return st, kindRetry
	}
	st.synced = true
	if reg := stored.Read.registration; reg != nil {
		st.complete = results.allEvaluated(func() []checking.Target { return k.selected(ctx, reg) })
	}
	may := stored.State(stored.Object.Spec.Mode == v1alpha1.Observe)
	// Before it is complete, what an earlier leader held back may not be known yet.
	if st.complete && !may.HealsOnly() && !may.IsFrozen() && results.breaker.CloseIfClear() {
		st.breakerOpen = false
	}
	if st.kindError = k.checkKind(ctx, stored.Read); st.kindError != nil {
		return st, kindRetry
	}
	// The kind may have come after the registration, and a target that is awaited may be gone before it is evaluated.
	if notified := k.notifyTargets(ctx, client.ObjectKeyFromObject(stored.Object)); !notified || !st.complete {
		return st, kindRetry
	}
	return st, 0
}

// checkKind says why a kind's objects can't have what a registration writes; nil when they can.
func (k *statusKeeper) checkKind(ctx context.Context, of parsedRegistration) error {
	layout, err := k.Layouts.Of(ctx, of.kind)
	if err != nil || of.registration == nil {
		return err
	}
	why := of.registration.Unwritable(layout)
	if why == "" {
		return nil
	}
	k.Layouts.Invalidate(of.kind) // somebody may fix the definition
	if layout.Problem != "" {
		why += "; write output: RegistrationOnly"
	}
	return fmt.Errorf("%s of %s can't have conditions: %s", of.kind.Kind, of.kind.GroupVersion(), why)
}

// statusThrottle lies at least between two writes of a status in which only counts, targets and words change: with thousands of targets
// they change all the time.
const statusThrottle = 10 * time.Second

// statusDelay is how long the write of the status must wait; 0 for one that changes what matters.
func (p *registrationResults) statusDelay(before, after *v1alpha1.HealthCheckRegistrationStatus, now time.Time) time.Duration {
	if isSignificant(before, after) || equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.statusWrittenAt.Add(statusThrottle).Sub(now))
}

func (p *registrationResults) statusWritten(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statusWrittenAt = now
}

// isSignificant says whether it changed what the registration may do, or what it is that the status describes. How its targets are isn't
// that.
func isSignificant(before, after *v1alpha1.HealthCheckRegistrationStatus) bool {
	said := func(s *v1alpha1.HealthCheckRegistrationStatus) (all []string) {
		for i := range s.Conditions {
			if c := &s.Conditions[i]; c.Type != v1alpha1.ConditionTargetsHealthy {
				all = append(all, c.Type+" "+string(c.Status)+" "+c.Reason)
			}
		}
		return all
	}
	first := func(s *v1alpha1.HealthCheckRegistrationStatus) bool {
		return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Reason == v1alpha1.ReasonStarting })
	}
	opening := func(s *v1alpha1.HealthCheckRegistrationStatus) string { // its reset needs to name it
		if s.Breaker == nil {
			return ""
		}
		return s.Breaker.ID
	}
	return before.ObservedGeneration != after.ObservedGeneration || opening(before) != opening(after) ||
		first(before) || !slices.Equal(said(before), said(after))
}

// recordChunkSize is how many targets are read at once, of which the metadata alone.
const recordChunkSize = 500

// unreleased counts the targets that have a condition of a deleted registration that no other registration decides.
func (k *statusKeeper) unreleased(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration) (policy.Remaining, error) {
	stored, ok := k.policies.Get(client.ObjectKeyFromObject(hcr))
	if !ok || !k.synced.Load() || stored.Object.DeletionTimestamp == nil {
		return policy.Remaining{Unknown: true}, nil
	}
	of := policy.Ref{UID: hcr.UID, NamespacedName: client.ObjectKeyFromObject(hcr)}
	records := "records of " + of.String()
	n, first, err := k.findUnreleased(ctx, stored)
	if err != nil {
		k.policies.Errors.RecordFailure(records, err, of)
		return policy.Remaining{Unknown: true}, err
	}
	k.policies.Errors.Clear(records)
	return policy.Remaining{Targets: n, Sample: []string{first}}, nil
}

// findUnreleased counts the targets whose records claim a condition that no other registration decides, as they were seen last. That there
// are none only a live read says: many of those would take from the removals what they need of the API server.
func (k *statusKeeper) findUnreleased(ctx context.Context, stored storedRegistration) (n int, first string, err error) {
	kind := stored.Read.kind
	if k.Watches.Watch(ctx, kind, true) == nil {
		objects, _ := k.Watches.List(ctx, kind, "", allTargets)
		if n, first := countUnreleased(k.Observer, kind, objects); n > 0 {
			return n, first, nil
		}
	}
	return k.findUnreleasedLive(ctx, kind)
}

// findUnreleasedLive asks the API server. A kind that isn't served any more has none.
func (k *statusKeeper) findUnreleasedLive(ctx context.Context, kind schema.GroupVersionKind) (n int, first string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for next := ""; ; next = list.Continue {
		switch err := k.Live.List(ctx, list, client.Limit(recordChunkSize), client.Continue(next)); {
		case checking.Unserved(err):
			return 0, "", nil
		case err != nil:
			return 0, "", fmt.Errorf("list each %s to see whose conditions are left: %w", kind.Kind, err)
		}
		objects := make([]*metav1.PartialObjectMetadata, len(list.Items))
		for i := range list.Items {
			objects[i] = &list.Items[i]
		}
		some, one := countUnreleased(k.Observer, kind, objects)
		if n += some; first == "" {
			first = one
		}
		if list.Continue == "" {
			return n, first, nil
		}
	}
}

// countUnreleased counts the targets whose records claim a condition that no registration decides which stays. One that is being deleted
// isn't looked at any more, however long that takes: its conditions go with it.
func countUnreleased[T client.Object](o *Observer, kind schema.GroupVersionKind, objects []T) (n int, first string) {
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		for _, t := range health.Owned(object) {
			if !o.decidedByAny(kind.GroupKind(), t) {
				if n++; first == "" {
					first = client.ObjectKeyFromObject(object).String()
				}
				break
			}
		}
	}
	return n, first
}
