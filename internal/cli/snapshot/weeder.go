package snapshot

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// newYard feeds workloads and stored configs to the planner of WeederConfigs, as far as they are known: ProbeConfigs ask it of
// Services and pods, too, also where nothing is known of WeederConfigs. State says what the configs may do.
func newYard(s *Snapshot, limits limit.Limits, ownNamespace string, state func(*v1alpha1.WeederConfig) lifecycle.State) *weed.Yard {
	yard, at := weed.NewYard(limits, ownNamespace), s.weederAt()
	for _, ns := range allOf[corev1.Namespace](s.Objects) {
		yard.ObserveNamespace(ns, at)
	}
	for _, svc := range allOf[corev1.Service](s.Objects) {
		yard.ObserveService(svc)
	}
	observeHolds(yard, "Deployment", allOf[appsv1.Deployment](s.Objects), at)
	observeHolds(yard, "StatefulSet", allOf[appsv1.StatefulSet](s.Objects), at)
	observeHolds(yard, "DaemonSet", allOf[appsv1.DaemonSet](s.Objects), at)
	for _, pod := range allOf[corev1.Pod](s.Objects) {
		yard.ObservePod(weed.ReadPod(pod), at)
	}
	for _, slice := range allOf[discoveryv1.EndpointSlice](s.Objects) {
		yard.ObserveSlice(slice, at)
	}
	for _, wc := range allOf[v1alpha1.WeederConfig](s.Objects) {
		if c, err := weed.NewConfig(wc, ownNamespace); err == nil && wc.DeletionTimestamp == nil {
			yard.ObserveConfig(c, state(wc), at)
		}
	}
	yard.MarkSynced(at)
	return yard
}

func observeHolds[W client.Object](yard *weed.Yard, kind string, workloads []W, at weed.Moment) {
	for _, w := range workloads {
		if h := hold.Of(w.GetAnnotations()); h != nil {
			yard.ObserveHold(weed.Workload{Namespace: w.GetNamespace(), Kind: kind, Name: w.GetName()}, h, "", at)
		}
	}
}

// weederAt is the snapshot's moment for the planner of WeederConfigs, which compares the API server's clock with that of the
// manager. Here there is no manager, and this machine's clock says nothing of the cluster.
func (s *Snapshot) weederAt() weed.Moment {
	return weed.Moment{Now: s.ServerTime.Time, Server: s.ServerTime.Time}
}

// frozen configs have windows and memories, but nothing is asked of what they would do.
func frozen(*v1alpha1.WeederConfig) lifecycle.State { return lifecycle.NotJudged }

// ForecastWeederConfig tells what a config would have done at the snapshot's moment.
func (f *Facts) ForecastWeederConfig(wc *v1alpha1.WeederConfig, limits limit.Limits, _ time.Time) weed.Forecast {
	return f.yard.Forecast(wc, limits, f.snapshot.weederAt())
}

// ForecastPods tells it pod by pod, of a config in that state.
func (f *Facts) ForecastPods(wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits) weed.Forecast {
	return f.yard.ForecastItems(wc, state, limits, f.snapshot.weederAt())
}
