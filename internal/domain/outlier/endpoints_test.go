package outlier_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func TestEachHostKnowsItsPod(t *testing.T) {
	endpoint := func(address, kind, name string) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		if kind != "" {
			e.TargetRef = &corev1.ObjectReference{Kind: kind, Name: name}
		}
		return e
	}
	slice := func(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
			Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}},
		}
	}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	got := outlier.HostsOf(svc, svc.Spec.Ports[0], []*discoveryv1.EndpointSlice{
		slice("a", endpoint("10.0.0.4", "Pod", "web-4"), endpoint("10.0.0.2", "Pod", "web-2"), endpoint("10.0.0.9", "", "")),
		slice("b", endpoint("10.0.0.3", "Pod", "web-3"), endpoint("10.0.0.8", "VirtualMachine", "old")),
	})
	want := []outlier.Host{
		{Address: "10.0.0.2", Port: 8080, Pod: "web-2"}, {Address: "10.0.0.3", Port: 8080, Pod: "web-3"}, {Address: "10.0.0.4", Port: 8080, Pod: "web-4"},
		{Address: "10.0.0.8", Port: 8080}, {Address: "10.0.0.9", Port: 8080},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
