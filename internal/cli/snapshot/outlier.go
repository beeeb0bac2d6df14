package snapshot

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// ForecastOutlierPolicy tells what a policy would have meant at the snapshot's moment.
func (f *Facts) ForecastOutlierPolicy(op *v1alpha1.OutlierPolicy, _ limit.Limits, _ time.Time) outlier.Forecast {
	return outlier.ForecastOf(op, f.routed(), f.ownNamespace)
}

// routed is the whole cluster.
func (f *Facts) routed() outlier.World {
	o := f.snapshot.Objects
	w := outlier.World{Policies: allOf[v1alpha1.OutlierPolicy](o), Services: allOf[corev1.Service](o), Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for _, slice := range allOf[discoveryv1.EndpointSlice](o) {
		of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		w.Slices[of] = append(w.Slices[of], slice)
	}
	for _, kind := range outlier.RouteKinds {
		for _, route := range o.all(kind) {
			w.Routes = append(w.Routes, outlier.ReadRoute(route.raw.Object))
		}
	}
	return w
}
