package survey

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// shelf is a cache of ProbeConfigs; lists counts how often it was asked.
type shelf struct {
	client.Reader
	configs map[string]*v1alpha1.ProbeConfig
	lists   int
}

func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	for _, pc := range s.configs {
		list.(*v1alpha1.ProbeConfigList).Items = append(list.(*v1alpha1.ProbeConfigList).Items, *pc)
	}
	return nil
}

// TestCountsAreWhatAllConfigsAddUpTo, whatever becomes of them, and are added up once for all reviews between two changes.
func TestCountsAreWhatAllConfigsAddUpTo(t *testing.T) {
	stored := &shelf{configs: map[string]*v1alpha1.ProbeConfig{}}
	informers := &Informers{Cache: stored}
	config := func(name string, probed, down int32, change func(*v1alpha1.ProbeConfig)) *v1alpha1.ProbeConfig {
		pc := &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		pc.Status.Targets = &v1alpha1.TargetCounts{Probed: probed, ScaledDown: down}
		if change != nil {
			change(pc)
		}
		return pc
	}
	for i, step := range []struct {
		*v1alpha1.ProbeConfig
		gone bool
		want string
	}{
		{config("a", 10, 2, nil), false, "{10 2}"},
		{config("b", 5, 0, nil), false, "{15 2}"},
		{config("a", 12, 3, nil), false, "{17 3}"},
		{config("b", 5, 1, func(pc *v1alpha1.ProbeConfig) { pc.Spec.Mode = v1alpha1.Observe }), false, "{12 4}"},
		{config("a", 12, 3, func(pc *v1alpha1.ProbeConfig) {
			pc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
		}), false, "{0 4}"},
		{config("c", 1, 0, func(pc *v1alpha1.ProbeConfig) { pc.Status.Targets = nil }), false, "{0 4}"},
		{config("a", 12, 3, nil), true, "{0 1}"},
		{config("b", 5, 1, nil), true, "{0 0}"},
	} {
		if stored.configs[step.Name] = step.ProbeConfig; step.gone {
			delete(stored.configs, step.Name)
		}
		informers.changes.Add(1)
		for range 3 {
			if sum, err := informers.Counts(t.Context()); fmt.Sprint(sum) != step.want || err != nil {
				t.Errorf("step %d: %v (%v), want %s", i, sum, err, step.want)
			}
		}
		if stored.lists != i+1 {
			t.Errorf("step %d: they were added up %d times", i, stored.lists)
		}
	}
}

func TestCountsOfAFileAreAddedUpEachTime(t *testing.T) {
	stored := &shelf{configs: map[string]*v1alpha1.ProbeConfig{}}
	informers := &Informers{Cache: stored}
	for want := range 3 {
		if sum, err := informers.Counts(t.Context()); sum.ScaledDown != want || err != nil {
			t.Errorf("%v (%v), want %d scaled down", sum, err, want)
		}
		stored.configs[fmt.Sprint(want)] = &v1alpha1.ProbeConfig{Status: v1alpha1.ProbeConfigStatus{Targets: &v1alpha1.TargetCounts{ScaledDown: 1}}}
	}
}
