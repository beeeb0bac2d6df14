package manager

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/certs"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// cacheOptions keep out of memory what nobody reads: with 5,000 nodes, or 100,000 pods, that is most of it.
// Interrupted is told when a watch fails.
func cacheOptions(o options, interrupted func()) cache.Options {
	return cache.Options{
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			interrupted()
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: slimNode},
			// What is stored isn't a Pod any more: only the planner's handlers can read it. All others read pods live.
			&corev1.Pod{}:                {Transform: weeder.Transform},
			&corev1.Service{}:            {Transform: slimService},
			&corev1.Namespace{}:          {Transform: slimNamespace},
			&discoveryv1.EndpointSlice{}: {Transform: slimSlice},
			&appsv1.Deployment{}:         {Transform: slimWorkload},
			&appsv1.StatefulSet{}:        {Transform: slimWorkload},
			// Only node leases: the manager may not list others, and there may be many.
			&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}},
			// Only its own, as of Secrets the record of the serving certificate: the manager may not watch others.
			&corev1.Secret{}: certs.OneSecret(o.namespace, o.certSecret),
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, webhookConfiguration)},
		},
	}
}

// slimNode drops the list of images and volumes.
func slimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	}
	return object, nil
}

// slimService leaves what says whose pods a Service has, and by which addresses and ports they are reached.
func slimService(object any) (any, error) {
	if svc, ok := object.(*corev1.Service); ok {
		svc.ObjectMeta = slimMeta(svc.ObjectMeta, false)
		svc.Spec = corev1.ServiceSpec{
			Type: svc.Spec.Type, Selector: svc.Spec.Selector, PublishNotReadyAddresses: svc.Spec.PublishNotReadyAddresses, ClusterIPs: svc.Spec.ClusterIPs,
			Ports: svc.Spec.Ports, IPFamilies: svc.Spec.IPFamilies,
		}
		svc.Status = corev1.ServiceStatus{LoadBalancer: svc.Status.LoadBalancer}
	}
	return object, nil
}

// slimNamespace leaves the labels, and whether it is hibernated.
func slimNamespace(object any) (any, error) {
	if ns, ok := object.(*corev1.Namespace); ok {
		hibernated, annotated := ns.Annotations[v1alpha1.AnnotationHibernated]
		ns.ObjectMeta = slimMeta(ns.ObjectMeta, true)
		if annotated {
			ns.Annotations = map[string]string{v1alpha1.AnnotationHibernated: hibernated}
		}
	}
	return object, nil
}

// slimWorkload leaves whether people ask to leave it alone.
func slimWorkload(object any) (any, error) {
	if w, ok := object.(*metav1.PartialObjectMetadata); ok {
		until, asked := w.Annotations[v1alpha1.AnnotationHoldUntil]
		w.ObjectMeta = slimMeta(w.ObjectMeta, false)
		if asked {
			w.Annotations = map[string]string{v1alpha1.AnnotationHoldUntil: until}
		}
	}
	return object, nil
}

// slimSlice leaves which pods are behind which Service, where, and how they are.
func slimSlice(object any) (any, error) {
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		slice.ObjectMeta = slimMeta(slice.ObjectMeta, true)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			*e = discoveryv1.Endpoint{Addresses: e.Addresses, Zone: e.Zone, Conditions: e.Conditions, TargetRef: e.TargetRef}
		}
	}
	return object, nil
}

func slimMeta(meta metav1.ObjectMeta, labels bool) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, DeletionTimestamp: meta.DeletionTimestamp,
	}
	if labels {
		slim.Labels = meta.Labels
	}
	return slim
}
