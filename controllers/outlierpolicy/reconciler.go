package outlierpolicy

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	told remembered
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
		r.told.forget(request.NamespacedName)
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
	tell := r.ejections(op, &after.Status, pic)
	written, err := kube.WriteStatus(ctx, r.Client, op, after)
	if err != nil {
		return reconcile.Result{}, err
	}
	if written {
		status.Tell(r.Events, op, loud(op.Status.Conditions), loud(after.Status.Conditions))
	}
	tell()
	return reconcile.Result{}, nil
}

// ejections puts into a status whom Envoys have ejected, and gives what tells by Events what is new in it.
func (r *Reconciler) ejections(op *v1alpha1.OutlierPolicy, after *v1alpha1.OutlierPolicyStatus, pic *picture) (tell func()) {
	if r.Publisher.Ejections == nil {
		noEjections(after)
		return func() {}
	}
	key := client.ObjectKeyFromObject(op)
	now := ejectedOf(pic.policies[key].clusters, r.Publisher.Ejections.View())
	before := r.told.of(key, &op.Status)
	carried := carry(&now, before)
	now.put(op, after, pic.policies[key])
	switch {
	case now.waits:
		return func() {}
	case now.unknown.Reason != "":
		return func() { r.told.keep(key, nil) }
	}
	return func() {
		newsOf(&now, before).tell(r.Events, op, pic.service)
		r.told.keep(key, carried)
	}
}

// loud are the conditions that Events tell of. One Envoy that is silent now and then is news of no policy, and there may be
// thousands.
func loud(all []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionEjectionsUnknown })
}

// service of a name, as the picture has it.
func (pic *picture) service(name types.NamespacedName) *corev1.Service {
	for _, svc := range pic.services[name.Namespace] {
		if svc.Name == name.Name {
			return svc
		}
	}
	return nil
}

// tellsOf says whether the picture has a policy as it is.
func (pic *picture) tellsOf(op *v1alpha1.OutlierPolicy) bool {
	s := pic.policies[client.ObjectKeyFromObject(op)]
	return s != nil && s.policy.UID == op.UID && s.generation == op.Generation
}
