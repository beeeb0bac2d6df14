package outlierpolicy

import (
	"context"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
)

// objectStore are what is stored, as informers have it and as the API server says.
type objectStore struct {
	informertest.FakeInformers
	client.Reader
	mu  sync.Mutex
	all map[string]map[string]map[types.NamespacedName]client.Object // by kind and namespace
}

func kindOf(o any) string {
	switch o := o.(type) {
	case *corev1.Service, *corev1.ServiceList:
		return "Service"
	case *discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList:
		return "EndpointSlice"
	case *v1alpha1.OutlierPolicy, *v1alpha1.OutlierPolicyList:
		return kindOutlierPolicy
	case *unstructured.UnstructuredList:
		return o.GetKind()[:len(o.GetKind())-len("List")]
	case client.Object:
		return o.GetObjectKind().GroupVersionKind().Kind
	}
	return ""
}

func (s *objectStore) set(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]map[string]map[types.NamespacedName]client.Object{}
	}
	kind := kindOf(o)
	if s.all[kind] == nil {
		s.all[kind] = map[string]map[types.NamespacedName]client.Object{}
	}
	if s.all[kind][o.GetNamespace()] == nil {
		s.all[kind][o.GetNamespace()] = map[types.NamespacedName]client.Object{}
	}
	s.all[kind][o.GetNamespace()][client.ObjectKeyFromObject(o)] = o
}

// remove gives what was there; nil for nothing.
func (s *objectStore) remove(kind string, key types.NamespacedName) client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.all[kind][key.Namespace][key]
	delete(s.all[kind][key.Namespace], key)
	return was
}

func (s *objectStore) get(kind string, key types.NamespacedName) client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[kind][key.Namespace][key]
}

// Get is what the API server says of whether an object is there.
func (s *objectStore) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s.get(kindOf(o), key) == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(o)}, key.Name)
	}
	return nil
}

// List is what informers have.
func (s *objectStore) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.all[kindOf(list)]
	if o.Namespace != "" {
		of = map[string]map[types.NamespacedName]client.Object{o.Namespace: of[o.Namespace]}
	}
	for _, in := range of {
		for _, object := range in {
			switch l := list.(type) {
			case *corev1.ServiceList:
				l.Items = append(l.Items, *object.(*corev1.Service))
			case *discoveryv1.EndpointSliceList:
				l.Items = append(l.Items, *object.(*discoveryv1.EndpointSlice))
			case *v1alpha1.OutlierPolicyList:
				l.Items = append(l.Items, *object.(*v1alpha1.OutlierPolicy))
			case *unstructured.UnstructuredList:
				l.Items = append(l.Items, *object.(*unstructured.Unstructured))
			}
		}
	}
	return nil
}

// undefined is a definition that isn't there.
func undefined(string) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(fcache.NewFakeControllerSource(), &corev1.Service{}, 0, nil)
}

// followed are informers of these objects, in a cluster that has HTTPRoutes and no other kind of routes.
func (s *objectStore) followed(ctx context.Context, t testing.TB) *outliers.Informers {
	t.Helper()
	i := &outliers.Informers{Cache: s, Mapper: gateway{}, Definition: undefined, OwnNamespace: systemNamespace}
	go func() { _ = i.Start(ctx) }()
	NewWithT(t).Eventually(i.Synced, "5s", "1ms").Should(BeTrue())
	return i
}

// sliceOf is a Service's only one, with a host for each address.
func sliceOf(svc *corev1.Service, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}},
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return slice
}
