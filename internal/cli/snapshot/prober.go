package snapshot

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

// ForecastProbeConfig tells what a config would have done at the snapshot's moment, and step by step what it would scale. What
// it names is read when it is asked where the snapshot was read live, and is that of the file otherwise.
func (f *Facts) ForecastProbeConfig(ctx context.Context, pc *v1alpha1.ProbeConfig, limits limit.Limits, _ time.Time) (probe.Forecast, error) {
	ahead := &probe.Ahead{Now: f.snapshot.TakenAt.Time}
	if stored := f.prober(types.NamespacedName{Namespace: pc.Namespace, Name: pc.Name}); stored != nil {
		ahead.Scaled = stored.Status.Scaled
	}
	forecast, err := f.surveyWith(f.surveyed()).ForecastItems(ctx, pc, limits, ahead)
	return forecast, unreadable(err)
}

// unreadable: what the user may not read, who needn't be allowed to read Secrets, isn't known.
func unreadable(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", guard.ErrNotKnown, err)
	}
	return err
}

// probers are the ProbeConfigs that are stored, or were applied since.
func (f *Facts) probers() []*v1alpha1.ProbeConfig {
	return allOf[v1alpha1.ProbeConfig](f.snapshot.Objects)
}

// prober is the one of this name; nil when there is none.
func (f *Facts) prober(key types.NamespacedName) *v1alpha1.ProbeConfig {
	stored, _ := f.snapshot.Objects.find(ours("ProbeConfig").GroupKind(), key)
	pc, _ := stored.typed.(*v1alpha1.ProbeConfig)
	return pc
}

// ProbedNow is how the targets of the stored ProbeConfig of this name are, by its status; nil when that doesn't tell.
func (f *Facts) ProbedNow(key types.NamespacedName) *v1alpha1.TargetCounts {
	if pc := f.prober(key); pc != nil {
		return pc.Status.Targets
	}
	return nil
}

// ProbeBreakerOpen says whether the breaker of ProbeConfigs is open, which is one for all.
func (f *Facts) ProbeBreakerOpen() bool {
	return slices.ContainsFunc(f.probers(), func(pc *v1alpha1.ProbeConfig) bool { return pc.Status.BreakerID != "" })
}

func (f *Facts) surveyed() surveyed {
	return surveyed{Objects: f.snapshot.Objects, live: f.snapshot.live, trimmed: f.snapshot.Trimmed}
}

func (f *Facts) surveyWith(objects survey.Objects) *survey.Survey {
	cluster := &survey.Informers{Cache: f.snapshot.Objects, Weeder: f.weeder}
	return &survey.Survey{Cluster: cluster, Objects: objects, OwnNamespace: f.ownNamespace, Annotated: true}
}
