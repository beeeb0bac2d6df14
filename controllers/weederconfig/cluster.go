package weederconfig

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/kube"
)

func (o *Observer) pod(pod *weed.Pod) { o.follow(o.yard().ObservePod(pod, o.moment())) }

func (o *Observer) podGone(pod *weed.Pod) {
	o.yard().ForgetPod(pod.Key(), pod.UID)
	o.follow(nil)
}

func (o *Observer) slice(slice *discoveryv1.EndpointSlice) {
	o.Facts.HeardSlices()
	o.follow(o.yard().ObserveSlice(slice, o.moment()))
}

func (o *Observer) sliceGone(slice *discoveryv1.EndpointSlice) {
	o.Facts.HeardSlices()
	o.yard().ForgetSlice(client.ObjectKeyFromObject(slice), slice.UID, o.moment())
	o.follow(nil)
}

func (o *Observer) service(svc *corev1.Service) { o.yard().ObserveService(svc) }

func (o *Observer) serviceGone(svc *corev1.Service) {
	o.yard().ForgetService(client.ObjectKeyFromObject(svc), svc.UID)
}

// about is the metadata of a kind of workload.
func about(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
	return object
}

// holds follows by which workloads people ask to leave their pods alone.
func holds[T client.Object](o *Observer, kind string) toolscache.ResourceEventHandlerFuncs {
	observe := func(w T, h *hold.Hold) {
		o.follow(o.yard().ObserveHold(weed.Workload{Namespace: w.GetNamespace(), Kind: kind, Name: w.GetName()}, h, o.moment()))
	}
	return kube.Handlers(func(w T) { observe(w, hold.Of(w.GetAnnotations())) }, func(w T) { observe(w, nil) }, o.historyLost)
}

func (o *Observer) namespace(ns *corev1.Namespace) {
	o.follow(o.yard().ObserveNamespace(ns, o.moment()))
}

func (o *Observer) namespaceGone(ns *corev1.Namespace) {
	o.yard().ForgetNamespace(ns.Name, ns.UID)
	o.follow(nil)
}
