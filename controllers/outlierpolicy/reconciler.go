package outlierpolicy

import (
	"context"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
)

// Reconciler keeps an OutlierPolicy's status. There is no finalizer: nothing outlives the policy but in Envoys, which the
// publisher tells.
type Reconciler struct {
	Client    client.Client
	Publisher *Publisher
	Events    events.EventRecorder

	pace status.Pace
}

// Reconcile keeps one policy's status.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	result, err := r.keep(ctx, request)
	return kube.AfterConflict(ctx, result, err, status.Delay)
}

func (r *Reconciler) keep(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	op := &v1alpha1.OutlierPolicy{}
	if err := r.Client.Get(ctx, request.NamespacedName, op); err != nil || op.DeletionTimestamp != nil {
		r.pace.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if wait := r.pace.Wait(request.NamespacedName, r.Publisher.Clock.Now(), op.Status.ObservedGeneration != op.Generation); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	pic := r.Publisher.picture()
	leads := r.Publisher.Leads == nil || r.Publisher.Leads() // asked after op was known: what is written then replaces no other leader's status
	if !leads || pic == nil || !pic.tellsOf(op) {
		return reconcile.Result{RequeueAfter: status.Delay}, nil // the translation of this generation is on its way
	}
	after := op.DeepCopy()
	after.Status = statusOf(op, pic, r.Publisher.Clusters)
	written, err := kube.WriteStatus(ctx, r.Client, op, after)
	if err == nil && written {
		status.Tell(r.Events, op, op.Status.Conditions, after.Status.Conditions)
	}
	return reconcile.Result{}, err
}

// tellsOf says whether the picture has a policy as it is.
func (pic *picture) tellsOf(op *v1alpha1.OutlierPolicy) bool {
	s := pic.policies[client.ObjectKeyFromObject(op)]
	return s != nil && s.policy.UID == op.UID && s.generation == op.Generation
}
