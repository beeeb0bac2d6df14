package snapshot

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// Routed is what OutlierPolicies are about beside Services and EndpointSlices.
type Routed struct {
	Routes []Route `json:"routes,omitempty"`
}

// Route is what a route says of Services.
type Route struct {
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`
	Backends  []Backend `json:"backends,omitempty"`
}

// Backend is a port of a Service that a route sends traffic to.
type Backend struct {
	Service string `json:"service"`
	Port    int32  `json:"port"`
	TCP     bool   `json:"tcp,omitempty"`
	HTTP2   bool   `json:"http2,omitempty"`
	TLS     bool   `json:"tls,omitempty"`
}

func (r *Routed) addRoute(object *unstructured.Unstructured) {
	read := outlier.ReadRoute(object.Object)
	route := Route{Namespace: read.Namespace, Kind: read.Kind, Name: read.Name}
	for _, b := range read.Backends {
		route.Backends = append(route.Backends, Backend(b))
	}
	r.Routes = append(r.Routes, route)
}

func (r *Route) read() outlier.Route {
	route := outlier.Route{Namespace: r.Namespace, RouteKey: outlier.RouteKey{Kind: r.Kind, Name: r.Name}}
	for _, b := range r.Backends {
		route.Backends = append(route.Backends, outlier.Backend(b))
	}
	return route
}

// KnowsRouted says whether the snapshot has Services and routes, without which nothing is known of OutlierPolicies.
func (f *Facts) KnowsRouted() bool { return f.snapshot.Routed != nil && f.snapshot.Workloads != nil }

// ForecastOutlierPolicy tells what a policy would have meant at the snapshot's moment.
func (f *Facts) ForecastOutlierPolicy(op *v1alpha1.OutlierPolicy, _ limit.Limits, _ time.Time) outlier.Forecast {
	return outlier.ForecastOf(op, f.routed(), f.ownNamespace)
}

// routed is the whole cluster.
func (f *Facts) routed() outlier.World {
	w := outlier.World{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for i := range f.outliers {
		w.Policies = append(w.Policies, &f.outliers[i])
	}
	for i := range f.snapshot.Workloads.Services {
		w.Services = append(w.Services, f.snapshot.Workloads.Services[i].read())
	}
	for i := range f.snapshot.Workloads.EndpointSlices {
		slice := f.snapshot.Workloads.EndpointSlices[i].read()
		of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		w.Slices[of] = append(w.Slices[of], slice)
	}
	for i := range f.snapshot.Routed.Routes {
		w.Routes = append(w.Routes, f.snapshot.Routed.Routes[i].read())
	}
	return w
}

// ApplyOutlierPolicy puts an admitted policy in place of the stored one of its name. What is asked next is answered with it in
// force.
func (f *Facts) ApplyOutlierPolicy(op *v1alpha1.OutlierPolicy) {
	op = op.DeepCopy()
	if stored := f.outlierPolicy(types.NamespacedName{Namespace: op.Namespace, Name: op.Name}); stored != nil {
		op.UID, op.CreationTimestamp, op.Status = stored.UID, stored.CreationTimestamp, *stored.Status.DeepCopy()
		*stored = *op
		return
	}
	op.UID, op.CreationTimestamp = types.UID("applied/"+op.Namespace+"/"+op.Name), f.snapshot.TakenAt
	f.outliers = append(f.outliers, *op)
}

func (f *Facts) outlierPolicy(key types.NamespacedName) *v1alpha1.OutlierPolicy {
	for i := range f.outliers {
		if f.outliers[i].Namespace == key.Namespace && f.outliers[i].Name == key.Name {
			return &f.outliers[i]
		}
	}
	return nil
}
