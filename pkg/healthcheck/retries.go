package healthcheck

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What is refused will be refused again until people change something, for thousands of targets alike.
const (
	shortestRetry = time.Second
	longestRetry  = time.Minute
)

// retries paces the tries of targets of which something failed. It holds up nothing else of them that is due sooner.
type retries struct {
	workqueue.TypedRateLimiter[reconcile.Request]

	mu  sync.Mutex
	due map[reconcile.Request]time.Duration // needs mu; of targets of which something failed
}

func newRetries() *retries {
	return &retries{
		TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](shortestRetry, longestRetry),
		due:              map[reconcile.Request]time.Duration{},
	}
}

// looked takes in what became of a look at a target, and when the next one is due; zero when that isn't known.
func (r *retries) looked(request reconcile.Request, due time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || due == 0 {
		delete(r.due, request)
	} else {
		r.due[request] = due
	}
}

// When is how long the next try of a target waits.
func (r *retries) When(request reconcile.Request) time.Duration {
	next := wait.Jitter(r.TypedRateLimiter.When(request), jitter)
	r.mu.Lock()
	defer r.mu.Unlock()
	if due, ok := r.due[request]; ok {
		next = min(next, max(due, shortestRetry))
	}
	return next
}
