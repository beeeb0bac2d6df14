package weederconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// retryAfter is how soon a pod is decided on anew when nobody could say whether it may be deleted, and how soon those are
	// looked at who may have its place: a refusal that all of them meet must not make them run in circles.
	retryAfter = time.Second
	// attempts bounds how often a pod that keeps changing is read and decided on in one go.
	attempts = 4
)

// errNotAdmitted: the config isn't judged just now, or isn't admitted any more.
var errNotAdmitted = errors.New("the WeederConfig isn't admitted now")

// errOutdated: what the deletion was decided by isn't so any more.
var errOutdated = errors.New("the deletion was decided by an older state")

// PodReconciler deletes the pods that a recovered Service lets restart.
type PodReconciler struct {
	Observer *Observer
	Pods     *actuate.Pods
	Recorder *DeletionRecorder
	// Live reads from the API server, past the cache.
	Live   client.Reader
	Errors *policy.ErrorTracker
	Report *Reporter

	liveReads liveReadCache
	sending   *semaphore.Weighted
}

// Reconcile decides on one pod, and deletes it if its time has come.
func (r *PodReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.Observer.handleChanges(nil)
	key := request.NamespacedName
	for range attempts {
		plan, next := r.decide(ctx, key)
		switch next {
		case weeder.Nothing:
			r.Errors.Clear(key.String())
			return r.requeueAt(plan.RequeueAt), nil
		case weeder.ReadLive: // only the pod itself shows the outcome of an earlier deletion
			if err := r.readLive(ctx, plan.Pod); err != nil {
				return reconcile.Result{}, err
			}
			continue
		}
		err := r.act(ctx, plan)
		if err == nil {
			return reconcile.Result{}, nil
		}
		if result, over, err := r.failed(ctx, plan, err); over {
			return result, err
		}
	}
	return reconcile.Result{RequeueAfter: retryAfter}, nil
}

// decide plans from what is known, once that is confirmed: what earlier leaders did, and what watches have been silent about.
func (r *PodReconciler) decide(ctx context.Context, key types.NamespacedName) (weeder.Plan, weeder.Next) {
	plan, next := r.decideWith(ctx, r.Recorder.Inherit(ctx), key)
	if next != weeder.Delete {
		return plan, next
	}
	read, err := r.refreshStale(ctx, plan)
	if !read {
		return plan, next
	}
	r.releaseReservation(plan)
	return r.decideWith(ctx, err, key)
}

// decideWith decides. A doubt holds a deletion back.
func (r *PodReconciler) decideWith(ctx context.Context, doubt error, key types.NamespacedName) (weeder.Plan, weeder.Next) {
	why := ""
	if doubt != nil {
		log.FromContext(ctx).Error(doubt, "Not deleting the pod yet: the API server can't confirm what the manager's caches say")
		why = doubt.Error()
	}
	return r.Observer.weeder().Decide(key, r.Observer.Facts.Moment(), why)
}

// act applies a plan and reports it.
func (r *PodReconciler) act(ctx context.Context, plan weeder.Plan) error {
	d := plan.Delete
	if !r.Observer.admissionFor(ctx, d).Valid() {
		return &notSent{errNotAdmitted}
	}
	leave, err := r.Recorder.Enter(ctx, d)
	if err != nil {
		return &notSent{err}
	}
	defer leave()
	if err := r.send(ctx, plan); err != nil {
		return err
	}
	r.Observer.weeder().Confirm(plan.Pod.UID, r.Observer.Facts.Moment())
	r.Errors.RecordSuccess(plan.Pod.Key().String(), policyOf(d))
	r.Report.reportDeletion(plan, r.Observer.Facts.Clock.Now())
	return nil
}

// send asks the API server for a deletion, when it is its turn. In a storm that comes a while after it was decided, so what
// admits it is asked for again then, and whether all that it was decided by is still so.
func (r *PodReconciler) send(ctx context.Context, plan weeder.Plan) error {
	if err := r.sending.Acquire(ctx, 1); err != nil {
		return &notSent{err}
	}
	defer r.sending.Release(1)
	admitted := r.Observer.admissionFor(ctx, plan.Delete)
	if !admitted.Valid() {
		return &notSent{errNotAdmitted}
	}
	if _, err := r.refreshStale(ctx, plan); err != nil {
		return &notSent{err}
	}
	if err := r.revalidate(plan); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, plan.Delete.Ends.Sub(r.Observer.Facts.Clock.Now()))
	defer cancel()
	return r.Pods.Apply(ctx, plan, admitted, func() error { return r.revalidate(plan) })
}

// revalidate fails when something has come to block a deletion since it was decided.
func (r *PodReconciler) revalidate(plan weeder.Plan) error {
	if why := r.Observer.weeder().Revalidate(plan, r.Observer.Facts.Moment()); why != "" {
		return &notSent{fmt.Errorf("%w: %s", errOutdated, why)}
	}
	return nil
}

// notSent is a failure before anything was asked of the API server that could delete the pod.
type notSent struct{ error }

func (u *notSent) Unwrap() error { return u.error }

// failed sees to what becomes of a pod that couldn't be deleted; over says that nothing more is to be done now.
func (r *PodReconciler) failed(ctx context.Context, plan weeder.Plan, err error) (result reconcile.Result, over bool, _ error) {
	key, d := plan.Pod.Key(), plan.Delete
	var before *notSent
	if actuate.Certain(err) || errors.As(err, &before) {
		r.releaseReservation(plan)
	}
	switch {
	case apierrors.IsNotFound(err) && before == nil && !unconfirmed(err): // else something else isn't found: the CRD of Guardrails, say
		r.Observer.weeder().ForgetPod(key, plan.Pod.UID) // whoever deleted it
		r.Errors.Clear(key.String())
		countAct(d, "stale")
		return reconcile.Result{}, true, nil
	case actuate.Refused(err):
		countAct(d, "refused")
		return r.requeueAt(r.Observer.weeder().Refuse(plan, err.Error(), r.Observer.Facts.Moment())), true, nil
	case superseded(err):
		countAct(d, "stale")
		return reconcile.Result{RequeueAfter: retryAfter}, true, nil
	case errors.Is(err, actuate.ErrStale): // the pod changed: as it is now it may still have to go
		countAct(d, "stale")
		err := r.readLive(ctx, plan.Pod)
		return reconcile.Result{}, err != nil, err
	}
	countAct(d, "failed")
	r.Errors.RecordFailure(key.String(), err, policyOf(d))
	return reconcile.Result{}, true, err
}

// superseded: the config isn't what was admitted any more, or is about to be judged again, or what was known has changed.
func superseded(err error) bool {
	return errors.Is(err, errNotAdmitted) || errors.Is(err, errOutdated) || unconfirmed(err) && errors.Is(err, actuate.ErrStale)
}

// unconfirmed: nobody said that the config is still what was admitted.
func unconfirmed(err error) bool {
	var u *actuate.Unconfirmed
	return errors.As(err, &u)
}

// releaseReservation releases what a deletion reserved that surely didn't happen.
func (r *PodReconciler) releaseReservation(plan weeder.Plan) {
	r.Observer.requestPods(r.Observer.weeder().Failed(plan.Pod.UID), retryAfter)
}

// readLive takes in a pod as the API server has it.
func (r *PodReconciler) readLive(ctx context.Context, known weeder.Pod) error {
	var pod corev1.Pod
	key := known.Key()
	if err := r.Live.Get(ctx, key, &pod); apierrors.IsNotFound(err) {
		r.Observer.weeder().ForgetPod(key, known.UID)
		return nil
	} else if err != nil {
		return fmt.Errorf("read pod %s before deleting it: %w", key, err)
	}
	r.Observer.requestPods(r.Observer.weeder().ObserveLive(weeder.ReadPod(&pod), r.Observer.Facts.Moment()), retryAfter)
	return nil
}

// requeueAt looks again when time alone may change the plan.
func (r *PodReconciler) requeueAt(t time.Time) reconcile.Result {
	if t.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(0, t.Sub(r.Observer.Facts.Clock.Now())) + pastDeadline}
}

func policyOf(d *weeder.Deletion) policy.Ref {
	return policy.Ref{UID: d.Config, NamespacedName: d.Key}
}
