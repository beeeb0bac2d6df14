package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weed"
)

// newYard feeds workloads and stored configs to the planner of WeederConfigs; nil when the snapshot has no workloads. State
// says what the configs may do.
func newYard(s *Snapshot, limits limit.Limits, ownNamespace string, state func(*v1alpha1.WeederConfig) lifecycle.State) (*weed.Yard, map[types.NamespacedName]*v1alpha1.WeederConfig) {
	configs := map[types.NamespacedName]*v1alpha1.WeederConfig{}
	for i := range s.WeederConfigs {
		wc := &s.WeederConfigs[i]
		configs[types.NamespacedName{Namespace: wc.Namespace, Name: wc.Name}] = wc
	}
	if s.Workloads == nil {
		return nil, configs
	}
	yard := weed.NewYard(limits, ownNamespace)
	s.Workloads.feed(yard, s.weederAt())
	for _, wc := range configs {
		if c, err := weed.NewConfig(wc, ownNamespace); err == nil && wc.DeletionTimestamp == nil {
			yard.ObserveConfig(c, state(wc), s.weederAt())
		}
	}
	yard.MarkSynced(s.weederAt())
	return yard, configs
}

// frozen configs have windows and memories, but nothing is asked of what they would do.
func frozen(*v1alpha1.WeederConfig) lifecycle.State { return lifecycle.NotJudged }

// KnowsWorkloads says whether the snapshot has pods and Services, without which nothing is known of WeederConfigs.
func (f *Facts) KnowsWorkloads() bool { return f.yard != nil }

// ForecastWeederConfig tells what a config would have done at the snapshot's moment.
func (f *Facts) ForecastWeederConfig(wc *v1alpha1.WeederConfig, limits limit.Limits, _ time.Time) weed.Forecast {
	return f.yard.Forecast(wc, limits, f.snapshot.weederAt())
}

// ForecastPods tells it pod by pod, of a config in that state.
func (f *Facts) ForecastPods(wc *v1alpha1.WeederConfig, state lifecycle.State, limits limit.Limits) weed.Forecast {
	return f.yard.ForecastItems(wc, state, limits, f.snapshot.weederAt())
}

// ApplyWeederConfig puts an admitted config in place of the stored one of its name. What is asked next is answered with it in
// force.
func (f *Facts) ApplyWeederConfig(wc *v1alpha1.WeederConfig) {
	wc = wc.DeepCopy()
	key := types.NamespacedName{Namespace: wc.Namespace, Name: wc.Name}
	wc.UID, wc.CreationTimestamp = types.UID("applied/"+key.String()), f.snapshot.TakenAt
	if stored := f.configs[key]; stored != nil {
		wc.UID, wc.CreationTimestamp, wc.Generation, wc.Status = stored.UID, stored.CreationTimestamp, stored.Generation, *stored.Status.DeepCopy()
	}
	wc.Generation++
	f.snapshot.rewrite("WeederConfig", wc)
	f.configs[key] = wc
	if c, err := weed.NewConfig(wc, f.ownNamespace); err == nil {
		f.yard.ObserveConfig(c, lifecycle.NotJudged, f.snapshot.weederAt())
	}
}
