package survey

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Counts are what ProbeConfigs' statuses add up to. A limit is a share of what configs in force probe.
type Counts struct{ Probed, ScaledDown int }

// CountsOf adds up configs.
func CountsOf(configs []v1alpha1.ProbeConfig) (sum Counts) {
	for i := range configs {
		pc := &configs[i]
		if pc.Status.Targets == nil {
			continue
		}
		sum.ScaledDown += int(pc.Status.Targets.ScaledDown)
		if pc.Spec.Mode != v1alpha1.Observe && !meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ConditionAccepted) {
			sum.Probed += int(pc.Status.Targets.Probed)
		}
	}
	return sum
}

// counted are the counts after so many changes of ProbeConfigs.
type counted struct {
	Counts
	changes int64
}

// Counts over all configs. They are added up once after each change, and not for each review, where the watch of ProbeConfigs tells of changes.
func (i *Informers) Counts(ctx context.Context) (Counts, error) {
	changes := i.changes.Load()
	if last := i.counted.Load(); last != nil && last.changes == changes {
		return last.Counts, nil
	}
	configs, err := i.Configs(ctx, metav1.NamespaceAll)
	if err != nil {
		return Counts{}, err
	}
	sum := CountsOf(configs)
	if changes > 0 {
		i.counted.Store(&counted{sum, changes})
	}
	return sum, nil
}
