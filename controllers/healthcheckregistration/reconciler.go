package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// kindWait lies between two looks at a kind that can't be read.
const kindWait = 10 * time.Second

// Reconciler keeps a HealthCheckRegistration's finalizer and status. The acting is the TargetReconciler's.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Observer *Observer
	Layouts  *checking.Layouts
	Troubles *status.Troubles
	Report   *Reporter
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool

	pace  status.Pace
	quiet quiet
}

// Reconcile keeps one registration's finalizer and status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	hcr := &v1alpha1.HealthCheckRegistration{}
	if err := r.Client.Get(ctx, request.NamespacedName, hcr); err != nil {
		forgetStates(request.Name)
		r.pace.Forget(request.NamespacedName)
		r.quiet.forget(request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if hcr.DeletionTimestamp != nil {
		return r.release(ctx, hcr)
	}
	if err := kube.SetFinalizer(ctx, r.Client, hcr, v1alpha1.FinalizerUndo, true); err != nil {
		return reconcile.Result{}, err
	}
	if wait := r.pace.Wait(request.NamespacedName, r.Observer.Facts.Clock.Now(), r.urgent(hcr)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	st, again := r.observe(ctx, hcr)
	if again > 0 && st.judgement.Object == nil {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	wait, err := r.writeStatus(ctx, hcr, st)
	return reconcile.Result{RequeueAfter: max(again, wait)}, err
}

// urgent: whoever changed a registration or a rule wants to see what is refused.
func (r *Reconciler) urgent(hcr *v1alpha1.HealthCheckRegistration) bool {
	j, judged := r.Observer.judge.Of(client.ObjectKeyFromObject(hcr))
	accepted := meta.IsStatusConditionTrue(hcr.Status.Conditions, v1alpha1.ConditionAccepted)
	return hcr.Status.ObservedGeneration != hcr.Generation || judged && !j.Outdated && j.Read.unreadable == nil && accepted != j.Verdict.Allowed
}

// observe gathers what the status tells, and when to look again, zero for when something changes. The judgement has no object
// while this generation isn't judged, and while the rules aren't known by which it would be.
func (r *Reconciler) observe(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration) (st state, again time.Duration) {
	j, ok := r.Observer.judge.Of(client.ObjectKeyFromObject(hcr))
	paused, known := r.Observer.judge.PausedBy()
	if !ok || !known || !j.Settled(hcr) {
		return state{}, status.Delay
	}
	st = state{judgement: j, paused: paused, trouble: r.Troubles.Get(hcr.UID), summary: r.Observer.book.summary(hcr.UID)}
	st.breaker, st.broken = r.Observer.book.breaker(hcr.UID)
	switch err := r.Observer.Watches.Watch(ctx, j.Read.kind, true); {
	case errors.Is(err, checking.ErrUnread):
		return st, status.Delay
	case err != nil:
		st.unusable = err
		return st, kindWait
	}
	st.synced = true
	if reg := j.Read.registration; reg != nil {
		st.complete = r.Observer.book.complete(hcr.UID, func() []checking.Target { return r.Observer.selected(ctx, reg) })
	}
	if st.unusable = r.fits(ctx, j.Read); st.unusable != nil {
		return st, kindWait
	}
	// The kind may have come after the registration, and a target that is awaited may be gone before it is looked at.
	if informed := r.Observer.inform(ctx, client.ObjectKeyFromObject(hcr)); !informed || !st.complete {
		return st, kindWait
	}
	return st, 0
}

// fits says why a kind's objects can't have what a registration writes; nil when they can.
func (r *Reconciler) fits(ctx context.Context, of reading) error {
	layout, err := r.Layouts.Of(ctx, of.kind)
	if err != nil || of.registration == nil {
		return err
	}
	why := of.registration.Unwritable(layout)
	if why == "" {
		return nil
	}
	r.Layouts.Doubt(of.kind) // somebody may mend the definition
	if layout.Problem != "" {
		why += "; write output: RegistrationOnly"
	}
	return fmt.Errorf("%s of %s can't have conditions: %s", of.kind.Kind, of.kind.GroupVersion(), why)
}

// writeStatus writes what changed, or gives how long that has to wait.
func (r *Reconciler) writeStatus(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, st state) (wait time.Duration, err error) {
	after := hcr.DeepCopy()
	after.Status = statusOf(hcr, st)
	gaugeStates(hcr.Name, after.Status)
	now := r.Observer.Facts.Clock.Now()
	if wait := r.quiet.wait(hcr.Name, &hcr.Status, &after.Status, now); wait > 0 {
		return wait, nil
	}
	written, err := kube.WriteStatus(ctx, r.Client, hcr, after)
	if err != nil {
		return 0, err
	}
	if written {
		r.quiet.written(hcr.Name, now)
		status.Tell(r.Report.Events, hcr, hcr.Status.Conditions, after.Status.Conditions)
	}
	return 0, nil
}

func decides(reg *registration.Registration, conditionType string) bool {
	for _, c := range reg.Checks {
		if c.ConditionType == conditionType {
			return true
		}
	}
	return false
}
