package survey

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// TestATallyIsWhatAllConfigsAddUpTo, whatever becomes of them, and isn't believed before all of them were heard of.
func TestATallyIsWhatAllConfigsAddUpTo(t *testing.T) {
	synced := false
	tallied := tally{synced: func() bool { return synced }}
	config := func(name string, probed, down int32, change func(*v1alpha1.ProbeConfig)) *v1alpha1.ProbeConfig {
		pc := &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		pc.Status.Targets = &v1alpha1.TargetCounts{Probed: probed, ScaledDown: down}
		if change != nil {
			change(pc)
		}
		return pc
	}
	stored := map[string]*v1alpha1.ProbeConfig{}
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
		if stored[step.Name] = step.ProbeConfig; step.gone {
			delete(stored, step.Name)
		}
		var object any = step.ProbeConfig
		if i == 7 { // a watch that was cut off missed it
			object = toolscache.DeletedFinalStateUnknown{Key: "ns/b", Obj: step.ProbeConfig}
		}
		tallied.note(object, step.gone)
		var all []v1alpha1.ProbeConfig
		for _, pc := range stored {
			all = append(all, *pc)
		}
		sum, known := tallied.counts()
		if fmt.Sprint(sum) != step.want || CountsOf(all) != sum || known {
			t.Errorf("step %d: %v, known %v, all add up to %v; want %s", i, sum, known, CountsOf(all), step.want)
		}
	}
	synced = true
	if _, known := tallied.counts(); !known {
		t.Error("isn't known once all were heard of")
	}
}
