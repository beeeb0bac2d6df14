package retry

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What the API server refuses isn't asked again and again, for thousands of objects; what fails otherwise is tried soon.
func TestWhatIsRefusedIsTriedLess(t *testing.T) {
	g := NewWithT(t)
	nodes := corev1.Resource("nodes")
	var answer error
	r := New(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, answer }), Refused)
	node := reconcile.Request{NamespacedName: types.NamespacedName{Name: "n"}}
	next := func(err error) time.Duration {
		answer = err
		_, told := r.Reconcile(t.Context(), node)
		g.Expect(told).To(BeIdenticalTo(err))
		return r.When(node)
	}
	between := func(least time.Duration) OmegaMatcher {
		return And(BeNumerically(">=", least), BeNumerically("<=", time.Duration(float64(least)*(1+refusedJitter))))
	}
	g.Expect(next(apierrors.NewConflict(nodes, "n", errors.New("x")))).To(Equal(5 * time.Millisecond))
	forbidden := errors.Join(errors.New("another trouble"), apierrors.NewForbidden(nodes, "n", errors.New("x")))
	for _, least := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		g.Expect(next(forbidden)).To(between(least * time.Second))
	}
	g.Expect(next(apierrors.NewInternalError(errors.New("x")))).To(Equal(10*time.Millisecond), "the second failure of another kind")
	g.Expect(r.NumRequeues(node)).To(Equal(10))

	answer = nil
	_, err := r.Reconcile(t.Context(), node)
	g.Expect(err).NotTo(HaveOccurred())
	r.Forget(node)
	g.Expect(r.NumRequeues(node)).To(BeZero())
	g.Expect(r.refusedUntil).To(BeEmpty())
	g.Expect(next(forbidden)).To(between(time.Second))
}

// A try again of what only time asked for would else wait behind everything, for ever if there is always something.
func TestATryAgainIsUrgentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		result reconcile.Result
		err    error
		want   int
	}{
		"a failure":                  {reconcile.Result{}, errors.New("x"), 0},
		"a failure of a quiet look":  {reconcile.Result{Priority: new(handler.LowPriority)}, errors.New("x"), 0},
		"a deadline":                 {reconcile.Result{RequeueAfter: time.Second}, nil, 0},
		"what only time asks for":    {reconcile.Result{RequeueAfter: time.Second, Priority: new(handler.LowPriority)}, nil, handler.LowPriority},
		"what is urgent by its kind": {reconcile.Result{Priority: new(7)}, nil, 7},
	} {
		r := New(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return c.result, c.err }), Refused)
		if got, _ := r.Reconcile(t.Context(), reconcile.Request{}); got.Priority == nil || *got.Priority != c.want {
			t.Errorf("%s: the next look has priority %v, want %d", name, got.Priority, c.want)
		}
	}
}

func TestARefusalHoldsUpNothingElseThatIsDue(t *testing.T) {
	g := NewWithT(t)
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "n", errors.New("x"))
	var due time.Duration
	r := New(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: due}, forbidden
	}), Refused)
	for _, c := range []struct{ due, want time.Duration }{
		{5 * time.Second, 5 * time.Second}, {time.Millisecond, minRefusedRetry}, {time.Hour, maxRefusedRetry}, {0, maxRefusedRetry},
	} {
		due = c.due
		for range 7 {
			result, _ := r.Reconcile(t.Context(), reconcile.Request{})
			g.Expect(result.RequeueAfter).To(BeZero())
			r.When(reconcile.Request{})
		}
		g.Expect(r.When(reconcile.Request{})).To(And(BeNumerically(">=", c.want), BeNumerically("<=", time.Duration(float64(c.want)*(1+refusedJitter)))), "%s", c.due)
	}
}
