package guardrail

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Reconciler keeps a Guardrail's status.
type Reconciler struct {
	Client     client.Client
	Observer   *Observer
	Rejections *kube.Rejections
	Events     events.EventRecorder
	// Clock. Default: the machine's.
	Clock clock.PassiveClock

	pace status.Pace
	once sync.Once
}

// Reconcile keeps one Guardrail's status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.once.Do(func() {
		if r.Clock == nil {
			r.Clock = clock.RealClock{}
		}
	})
	g := &v1alpha1.Guardrail{}
	if err := r.Client.Get(ctx, request.NamespacedName, g); err != nil {
		forgetGuardrail(request.Name)
		r.pace.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	became, ok := r.Observer.outcomeOf(g)
	if !ok {
		return reconcile.Result{}, nil // its turn comes when it is in force
	}
	if wait := r.pace.Wait(request.NamespacedName, r.Clock.Now(), g.Status.ObservedGeneration != g.Generation); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	rejected := r.Rejections.Of(g.Name)
	gaugeGuardrail(g.Name, len(rejected))
	after := g.DeepCopy()
	after.Status = statusOf(g, state{result: became.GuardrailResult, rejected: rejected})
	written, err := kube.WriteStatus(ctx, r.Client, g, after)
	if written {
		status.Tell(r.Events, g, g.Status.Conditions, after.Status.Conditions)
	}
	return reconcile.Result{}, err
}
