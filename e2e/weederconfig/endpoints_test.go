package weederconfig

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (s shop) slices(ctx context.Context, service string) []discoveryv1.EndpointSlice {
	GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	Expect(h.Client.List(ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})).To(Succeed())
	return list.Items
}

func (s shop) readyEndpoints(ctx context.Context, service string) int {
	GinkgoHelper()
	ready := 0
	for _, slice := range s.slices(ctx, service) {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready++
			}
		}
	}
	return ready
}

// write puts pods behind a Service by a slice of our own, as those who write slices for a Service without a selector do.
func (s shop) write(ctx context.Context, service, name string, ready bool, pods ...corev1.Pod) {
	GinkgoHelper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: named(s.namespace, name), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	slice.Endpoints = []discoveryv1.Endpoint{}
	for _, pod := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: s.namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	var stored discoveryv1.EndpointSlice
	err := h.Client.Get(ctx, client.ObjectKeyFromObject(slice), &stored)
	if client.IgnoreNotFound(err) == nil && err != nil {
		Expect(h.Client.Create(ctx, slice)).To(Succeed())
		return
	}
	Expect(err).NotTo(HaveOccurred())
	stored.Endpoints = slice.Endpoints
	Expect(h.Client.Update(ctx, &stored)).To(Succeed())
}
