// Package certs provides the certificate that the admission webhook serves: one that the managers make, publish and
// rotate themselves (SelfSigned), one that cert-manager issues and the managers publish (CertManager), or one that somebody
// else keeps in files (Files). None needs a restart.
//
// The first two share a record, a Secret with what every replica serves and with all CAs to trust, and the order of things:
// a CA is published first, then what it signed is served, and it is trusted until it expires. See keeper.
//
// Private keys are never logged.
package certs

import (
	"context"
	"errors"
	"fmt"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/resourcestack/autohealer/internal/metric"
)

// SetupWithManager runs the provider on every replica.
func (s *SelfSigned) SetupWithManager(mgr ctrl.Manager) error { return s.setup(mgr, s) }

// SetupWithManager runs the provider on every replica. It needs the rights in config/certmanager.
func (m *CertManager) SetupWithManager(mgr ctrl.Manager) error {
	if err := cmv1.AddToScheme(mgr.GetScheme()); err != nil {
		return fmt.Errorf("add cert-manager's kinds to the scheme: %w", err)
	}
	m.mapper = mgr.GetRESTMapper()
	issued, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: OneSecret(m.options.Namespace, m.IssuedSecret())},
	})
	if err != nil {
		return fmt.Errorf("make the cache of what cert-manager issues: %w", err)
	}
	if err := mgr.Add(everyReplicas{issued}); err != nil {
		return fmt.Errorf("add the cache of what cert-manager issues: %w", err)
	}
	return m.setup(mgr, m, source.Func(func(ctx context.Context, queue queue) error { return watchWithoutWaiting(ctx, issued, queue) }))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// setup watches the record and the webhook's configuration in the manager's cache, which must have no others: to watch all Secrets of the
// namespace would need more rights.
func (k *keeper) setup(mgr ctrl.Manager, r reconcile.Reconciler, further ...source.Source) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	k.client, k.reader = mgr.GetClient(), mgr.GetAPIReader()
	builder := ctrl.NewControllerManagedBy(mgr).
		Named("serving-certificate").
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false), SkipNameValidation: ptr.To(true)}).
		WatchesRawSource(source.Func(enqueueOnce)). // where neither object exists there is no event
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(always)).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(always))
	for _, s := range further {
		builder.WatchesRawSource(s)
	}
	return builder.Complete(r)
}

// OneSecret is how a cache has a single Secret.
func OneSecret(namespace, name string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}}}
}

// everyReplicas is a cache that a standby starts too. Without this the manager would keep a cache of several kinds for
// the leader, and a standby would wait for its certificate for ever.
type everyReplicas struct{ cache.Cache }

func (everyReplicas) NeedLeaderElection() bool { return false }

// watchWithoutWaiting asks for events of the Secret that cert-manager writes. Without the right to watch it the manager must
// come up all the same, and say what it lacks; a controller that waited for the first list would end it instead.
func watchWithoutWaiting(ctx context.Context, issued cache.Cache, queue queue) error {
	informer, err := issued.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch what cert-manager issues: %w", err)
	}
	enqueue := func() { queue.Add(reconcile.Request{}) }
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { enqueue() }, UpdateFunc: func(any, any) { enqueue() }, DeleteFunc: func(any) { enqueue() },
	})
	return err
}

// always the same request: there is one thing to keep.
func always(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }

func enqueueOnce(_ context.Context, queue queue) error {
	queue.Add(reconcile.Request{})
	return nil
}

// errNothingServed is what handshakes and readiness say before the first certificate.
var errNothingServed = errors.New("no serving certificate yet")

// expiry is for the alert that fires when rotation has failed for long.
var expiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "autohealer_webhook_certificate_expiry_timestamp_seconds",
	Help: "When the certificate that this replica's webhook serves expires, in seconds since 1970.",
})

func registerMetrics() error {
	return metric.Register(expiry)
}
