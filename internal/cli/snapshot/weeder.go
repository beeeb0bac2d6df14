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
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// newWeeder feeds workloads and stored configs to the planner of WeederConfigs, as far as they are known: ProbeConfigs ask it of
// Services and pods, too, also where nothing is known of WeederConfigs. State says what the configs may do.
func newWeeder(s *Snapshot, limits limit.Limits, ownNamespace string, state func(*v1alpha1.WeederConfig) lifecycle.State) *weeder.State {
	known, at := weeder.NewState(limits, ownNamespace), s.weederAt()
	for _, ns := range allOf[corev1.Namespace](s.Objects) {
		known.ObserveNamespace(ns, at)
	}
	for _, svc := range allOf[corev1.Service](s.Objects) {
		known.ObserveService(svc)
	}
	observeHolds(known, "Deployment", allOf[appsv1.Deployment](s.Objects), at)
	observeHolds(known, "StatefulSet", allOf[appsv1.StatefulSet](s.Objects), at)
	observeHolds(known, "DaemonSet", allOf[appsv1.DaemonSet](s.Objects), at)
	for _, pod := range allOf[corev1.Pod](s.Objects) {
		known.ObservePod(weeder.ReadPod(pod), at)
	}
	for _, slice := range allOf[discoveryv1.EndpointSlice](s.Objects) {
		known.ObserveSlice(slice, at)
	}
	for _, wc := range allOf[v1alpha1.WeederConfig](s.Objects) {
		if c, err := weeder.NewConfig(wc, ownNamespace); err == nil && wc.DeletionTimestamp == nil {
			known.ObserveConfig(c, state(wc), at)
		}
	}
	known.MarkSynced(at)
	return known
}

func observeHolds[W client.Object](known *weeder.State, kind string, workloads []W, at weeder.Moment) {
	for _, w := range workloads {
		if h := hold.Of(w.GetAnnotations()); h != nil {
			known.ObserveHold(weeder.Workload{Namespace: w.GetNamespace(), Kind: kind, Name: w.GetName()}, h, "", at)
		}
	}
}

// weederAt is the snapshot's moment for the planner of WeederConfigs, which compares the API server's clock with that of the
// manager. Here there is no manager, and this machine's clock says nothing of the cluster.
func (s *Snapshot) weederAt() weeder.Moment {
	return weeder.Moment{Now: s.ServerTime.Time, Server: s.ServerTime.Time}
}

// frozen configs have windows and memories, but nothing is asked of what they would do.
func frozen(*v1alpha1.WeederConfig) lifecycle.State { return lifecycle.NotJudged }

// ForecastWeederConfig tells what a config would have done at the snapshot's moment.
func (f *Facts) ForecastWeederConfig(wc *v1alpha1.WeederConfig, limits limit.Limits, _ time.Time) weeder.Forecast {
	return f.weeder.Forecast(wc, limits, f.snapshot.weederAt())
}

// ForecastPods tells it pod by pod, of a config in that state.
func (f *Facts) ForecastPods(wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits) weeder.Forecast {
	return f.weeder.ForecastItems(wc, state, limits, f.snapshot.weederAt())
}
