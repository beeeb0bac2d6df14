package manager

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/certs"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// cacheOptions keep out of memory what nobody reads: with 5,000 nodes, or 100,000 pods, that is most of it.
// Interrupted is called when a watch fails.
func cacheOptions(o options, interrupted func()) cache.Options {
	return cache.Options{
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			interrupted()
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: trimNode},
			// What is stored isn't a Pod any more: only the planner's handlers can read it. All others read pods live.
			&corev1.Pod{}:                {Transform: weeder.Transform},
			&corev1.Service{}:            {Transform: trimService},
			&corev1.Namespace{}:          {Transform: trimNamespace},
			&discoveryv1.EndpointSlice{}: {Transform: trimSlice},
			&appsv1.Deployment{}:         {Transform: trimWorkload},
			&appsv1.StatefulSet{}:        {Transform: trimWorkload},
			// Only node leases: the manager may not list others, and there may be many.
			&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}},
			// Only its own, as of Secrets the record of the serving certificate: the manager may not watch others.
			&corev1.Secret{}: certs.OneSecret(o.namespace, o.certSecret),
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, webhookConfiguration)},
		},
	}
}

// trimNode drops the list of images and volumes.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	}
	return object, nil
}

// trimService leaves what says whose pods a Service has, and by which addresses and ports they are reached.
func trimService(object any) (any, error) {
	if svc, ok := object.(*corev1.Service); ok {
		svc.ObjectMeta = trimMeta(svc.ObjectMeta, false)
		svc.Spec = corev1.ServiceSpec{
			Type: svc.Spec.Type, Selector: svc.Spec.Selector, PublishNotReadyAddresses: svc.Spec.PublishNotReadyAddresses, ClusterIPs: svc.Spec.ClusterIPs,
			Ports: svc.Spec.Ports, IPFamilies: svc.Spec.IPFamilies,
		}
		svc.Status = corev1.ServiceStatus{LoadBalancer: svc.Status.LoadBalancer}
	}
	return object, nil
}

// trimNamespace leaves the labels, and whether it is hibernated.
func trimNamespace(object any) (any, error) {
	if ns, ok := object.(*corev1.Namespace); ok {
		hibernated, annotated := ns.Annotations[v1alpha1.AnnotationHibernated]
		ns.ObjectMeta = trimMeta(ns.ObjectMeta, true)
		if annotated {
			ns.Annotations = map[string]string{v1alpha1.AnnotationHibernated: hibernated}
		}
	}
	return object, nil
}

// trimWorkload leaves whether people ask to leave it alone.
func trimWorkload(object any) (any, error) {
	if w, ok := object.(*metav1.PartialObjectMetadata); ok {
		until, annotated := w.Annotations[v1alpha1.AnnotationHoldUntil]
		w.ObjectMeta = trimMeta(w.ObjectMeta, false)
		if annotated {
			w.Annotations = map[string]string{v1alpha1.AnnotationHoldUntil: until}
		}
	}
	return object, nil
}

// trimSlice leaves which pods are behind which Service, where, and how they are.
func trimSlice(object any) (any, error) {
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		slice.ObjectMeta = trimMeta(slice.ObjectMeta, true)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			*e = discoveryv1.Endpoint{Addresses: e.Addresses, Zone: e.Zone, Conditions: e.Conditions, TargetRef: e.TargetRef}
		}
	}
	return object, nil
}

func trimMeta(meta metav1.ObjectMeta, labels bool) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, DeletionTimestamp: meta.DeletionTimestamp,
	}
	if labels {
		slim.Labels = meta.Labels
	}
	return slim
}

const (
	// maxTargetsRead is one more than what a rule warns of.
	maxTargetsRead = 1001
	// maxTargetsChecked and forecastTimeout keep a review well within the webhook's five seconds.
	maxTargetsChecked = 100
	forecastTimeout   = 2500 * time.Millisecond
)

// newDependents asks the planner of HealthCheckRegistrations. It reads targets live, and not all: they may be of a kind that nothing has
// watched so far.
func newDependents(mgr ctrl.Manager, o options) (*dependents.Survey, error) {
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the client of discovery: %w", err)
	}
	return &dependents.Survey{
		Objects: &dependents.Live{
			Reader: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(), Policy: kubeconfig.Policy{AllowLoopback: o.probeLoopback},
			Schemas: dependents.NewSchemas(openapi.NewClientWithContext(kinds.RESTClient())),
		},
		Stored: func(ctx context.Context) ([]*v1alpha1.HealthCheckRegistration, error) {
			var list v1alpha1.HealthCheckRegistrationList
			if err := mgr.GetCache().List(ctx, &list); err != nil {
				return nil, fmt.Errorf("list HealthCheckRegistrations: %w", err)
			}
			all := make([]*v1alpha1.HealthCheckRegistration, len(list.Items))
			for i := range list.Items {
				all[i] = &list.Items[i]
			}
			return all, nil
		},
		Read: maxTargetsRead, Check: maxTargetsChecked, Within: forecastTimeout, Known: &dependents.Known{},
	}, nil
}

// newSurvey asks the planner of ProbeConfigs, on what the manager's informers know, and reads live only what a config names.
func newSurvey(ctx context.Context, mgr ctrl.Manager, o options, facts *kube.Facts, rights authorizer.UnconditionalAuthorizer) (*survey.Survey, error) {
	informers := &survey.Informers{Cache: mgr.GetCache(), Weeder: facts.Weeder}
	if err := informers.Follow(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the client of discovery: %w", err)
	}
	return &survey.Survey{
		Cluster: informers,
		Objects: &survey.Live{
			Reader: mgr.GetAPIReader(), Scales: mgr.GetClient().SubResource("scale"), Kinds: kinds,
			Policy: kubeconfig.Policy{AllowLoopback: o.probeLoopback},
		},
		Rights: rights, OwnNamespace: o.namespace, Pace: survey.NewPace(),
		OwnPod: ownPod(mgr.GetAPIReader(), o.namespace),
	}, nil
}

// ownPod reads the labels of the pod that this process runs in, which POD_NAME names, or else the host's name, which is another on a
// node's network. Who runs it elsewhere has none.
func ownPod(live client.Reader, namespace string) func(context.Context) (labels.Set, error) {
	return func(ctx context.Context) (labels.Set, error) {
		host, _ := os.Hostname()
		name := cmp.Or(os.Getenv("POD_NAME"), host)
		if name == "" {
			return nil, nil
		}
		var pod metav1.PartialObjectMetadata
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return pod.Labels, nil
	}
}
