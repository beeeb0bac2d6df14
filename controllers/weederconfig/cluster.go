package weederconfig

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/weed"
)

func (o *Observer) pod(pod *weed.Pod) { o.follow(o.yard().ObservePod(pod, o.moment())) }

func (o *Observer) podGone(pod *weed.Pod) {
	o.yard().ForgetPod(pod.Key())
	o.follow(nil)
}

func (o *Observer) slice(slice *discoveryv1.EndpointSlice) {
	o.Facts.HeardSlices()
	o.follow(o.yard().ObserveSlice(slice, o.moment()))
}

func (o *Observer) sliceGone(slice *discoveryv1.EndpointSlice) {
	o.Facts.HeardSlices()
	o.yard().ForgetSlice(client.ObjectKeyFromObject(slice))
	o.follow(nil)
}

func (o *Observer) service(svc *corev1.Service) { o.yard().ObserveService(svc) }

func (o *Observer) serviceGone(svc *corev1.Service) {
	o.yard().ForgetService(client.ObjectKeyFromObject(svc))
}

func (o *Observer) namespace(ns *corev1.Namespace) {
	o.follow(o.yard().ObserveNamespace(ns.Name, ns.Labels, o.moment()))
}

func (o *Observer) namespaceGone(ns *corev1.Namespace) {
	o.yard().ForgetNamespace(ns.Name)
	o.follow(nil)
}
