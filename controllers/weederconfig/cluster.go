package weederconfig

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
)

func (o *Observer) pod(pod *weeder.Pod) { o.follow(o.weeder().ObservePod(pod, o.moment())) }

func (o *Observer) podGone(pod *weeder.Pod) {
	o.weeder().ForgetPod(pod.Key(), pod.UID)
	o.follow(nil)
}

func (o *Observer) slice(slice *discoveryv1.EndpointSlice) {
	o.heardOf(kindSlice)
	o.follow(o.weeder().ObserveSlice(slice, o.moment()))
}

func (o *Observer) sliceGone(slice *discoveryv1.EndpointSlice) {
	o.heardOf(kindSlice)
	o.weeder().ForgetSlice(client.ObjectKeyFromObject(slice), slice.UID, o.moment())
	o.follow(nil)
}

func (o *Observer) service(svc *corev1.Service) {
	o.weeder().ObserveService(svc)
	o.follow(nil)
}

func (o *Observer) serviceGone(svc *corev1.Service) {
	o.weeder().ForgetService(client.ObjectKeyFromObject(svc), svc.UID)
	o.follow(nil)
}

// about is the metadata of a kind.
func about(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// workload is a kind of them.
func workload(kind string) schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind(kind) }

// kindSlice is the kind of what tells which pods are behind a Service.
const kindSlice = "EndpointSlice"

// believable are the kinds whose watches are believed while they tell of anything: besides slices, the workloads by which people may
// ask to leave their pods alone.
var believable = sets.New(kindSlice, "Deployment", "StatefulSet", "DaemonSet")

// holds follows what the workloads of one of these kinds ask for.
func holds[T client.Object](o *Observer, kind string, like client.Object) kube.Watch {
	return kube.On(like,
		func(w T) { o.heardOf(kind); o.hold(kind, w) },
		func(w T) { o.heardOf(kind); o.holdGone(named(kind, w.GetNamespace(), w.GetName())) })
}

// heardOf notes that the watch of a kind told of something.
func (o *Observer) heardOf(kind string) { o.heard.Store(kind, o.Facts.Clock.Now()) }

// quiet says whether the watch of a kind has told of nothing lately.
func (o *Observer) quiet(kind string, now time.Time) bool {
	at, heard := o.heard.Load(kind)
	return believable.Has(kind) && (!heard || now.Sub(at.(time.Time)) > o.Facts.Timings.QuietWatch())
}

func named(kind, namespace, name string) weeder.Workload {
	return weeder.Workload{Namespace: namespace, Kind: kind, Name: name}
}

func (o *Observer) hold(kind string, w client.Object) {
	o.follow(o.weeder().ObserveHold(named(kind, w.GetNamespace(), w.GetName()), hold.Of(w.GetAnnotations()), w.GetResourceVersion(), o.moment()))
}

func (o *Observer) holdGone(w weeder.Workload) { o.follow(o.weeder().ForgetHold(w, o.moment())) }

func (o *Observer) namespace(ns *corev1.Namespace) {
	o.follow(o.weeder().ObserveNamespace(ns, o.moment()))
}

func (o *Observer) namespaceGone(ns *corev1.Namespace) {
	o.weeder().ForgetNamespace(ns.Name, ns.UID)
	o.follow(nil)
}
