package healthcheckregistration

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// quietFor lies at least between two writes of a status in which only counts, targets and words change: with thousands of targets
// they change all the time.
const quietFor = 10 * time.Second

// quiet knows when statuses were written. It is safe for concurrent use; the zero value knows none.
type quiet struct {
	mu sync.Mutex
	at map[string]time.Time // by registration; needs mu
}

// wait is how long the write of a status must wait; 0 for one that changes what matters.
func (q *quiet) wait(name string, before, after *v1alpha1.HealthCheckRegistrationStatus, now time.Time) time.Duration {
	if matters(before, after) || equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, q.at[name].Add(quietFor).Sub(now))
}

func (q *quiet) written(name string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.at == nil {
		q.at = map[string]time.Time{}
	}
	q.at[name] = now
}

func (q *quiet) forget(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.at, name)
}

// matters says whether it changed what the registration may do, or what it is that the status describes. How its targets are isn't
// that.
func matters(before, after *v1alpha1.HealthCheckRegistrationStatus) bool {
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
