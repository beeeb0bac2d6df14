package certs

import (
	"fmt"

	"context"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// SetupWithManager runs the provider on every replica. It brings its own cache, of the two objects alone: watching all
// Secrets of the namespace would need more rights.
func (s *SelfSigned) SetupWithManager(mgr ctrl.Manager) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	s.client, s.reader = mgr.GetClient(), mgr.GetAPIReader()
	objects, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{s.options.Namespace: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", s.options.SecretName),
			},
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: {
				Field: fields.OneTermEqualSelector("metadata.name", s.options.WebhookConfiguration),
			},
		},
	})
	if err != nil {
		return fmt.Errorf("make the serving certificate's cache: %w", err)
	}
	if err := mgr.Add(everyReplicas{objects}); err != nil {
		return fmt.Errorf("add the serving certificate's cache: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("serving-certificate").
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false), SkipNameValidation: ptr.To(true)}).
		WatchesRawSource(source.Func(lookOnce)). // where neither object exists there is no event
		WatchesRawSource(source.Kind(objects, client.Object(&corev1.Secret{}), handler.EnqueueRequestsFromMapFunc(always))).
		WatchesRawSource(source.Kind(objects, client.Object(&admissionregistrationv1.ValidatingWebhookConfiguration{}), handler.EnqueueRequestsFromMapFunc(always))).
		Complete(s)
}

// everyReplicas is a cache that a standby starts too. Without this the manager would keep a cache of several kinds for
// the leader, and a standby would wait for its certificate for ever.
type everyReplicas struct{ cache.Cache }

func (everyReplicas) NeedLeaderElection() bool { return false }

// always the same request: there is one thing to keep.
func always(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }

func lookOnce(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(reconcile.Request{})
	return nil
}
