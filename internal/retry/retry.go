// Package retry paces the tries of what fails, for all controllers alike.
package retry

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// A foreign writer that keeps winning mustn't push us into minutes of back-off.
	minRetry = 5 * time.Millisecond
	maxRetry = 5 * time.Second
	// What is refused will be refused again until people change something, for thousands of objects alike. An API server that just
	// started refuses, too, until it has read the roles.
	minRefusedRetry = time.Second
	maxRefusedRetry = time.Minute
	refusedJitter   = 0.2
)

// jitter spreads the looks at objects that began together.
const jitter = 0.1

// RequeueAfter is when to look again: at a deadline, if there is one, or after the period.
func RequeueAfter(period time.Duration, deadline, now time.Time) time.Duration {
	period = wait.Jitter(period, jitter)
	if deadline.IsZero() {
		return period
	}
	return min(period, max(deadline.Sub(now), time.Millisecond))
}

// Retries paces the tries of a controller's objects. It is its Reconciler and its RateLimiter.
type Retries struct {
	reconcile.Reconciler

	isRefusal          func(error) bool
	failures, refusals workqueue.TypedRateLimiter[reconcile.Request]

	mu           sync.Mutex
	refusedUntil map[reconcile.Request]time.Duration // needs mu; until when something else of the object is due, 0 for never
}

// New a Reconciler, which says by RequeueAfter when an object is due whatever failed. A refusal is likely to be one again.
func New(r reconcile.Reconciler, isRefusal func(error) bool) *Retries {
	return &Retries{
		Reconciler: r, isRefusal: isRefusal, refusedUntil: map[reconcile.Request]time.Duration{},
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
		refusals: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRefusedRetry, maxRefusedRetry),
	}
}

// Reconcile takes in whether the API server refused something, which paces the next try. That has the priority of this one no more:
// what was found by a look that only time asked for may be urgent.
func (r *Retries) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.Reconciler.Reconcile(ctx, request)
	if result.Priority == nil || err != nil {
		result.Priority = new(0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.isRefusal(err) {
		r.refusedUntil[request] = result.RequeueAfter
	} else {
		delete(r.refusedUntil, request)
	}
	if err != nil {
		result.RequeueAfter = 0 // controller-runtime warns of both
	}
	return result, err
}

// When is how long the next try of an object waits. What is refused of it holds up nothing else of it that is due sooner.
func (r *Retries) When(request reconcile.Request) time.Duration {
	r.mu.Lock()
	due, refused := r.refusedUntil[request]
	r.mu.Unlock()
	if !refused {
		return r.failures.When(request)
	}
	next := wait.Jitter(r.refusals.When(request), refusedJitter)
	if due > 0 {
		next = min(next, max(due, minRefusedRetry))
	}
	return next
}

// Forget that an object failed.
func (r *Retries) Forget(request reconcile.Request) {
	r.failures.Forget(request)
	r.refusals.Forget(request)
}

// NumRequeues is how often an object failed.
func (r *Retries) NumRequeues(request reconcile.Request) int {
	return r.failures.NumRequeues(request) + r.refusals.NumRequeues(request)
}

// Refused says whether the API server refused a request for what it asks, or for who asks it.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}
