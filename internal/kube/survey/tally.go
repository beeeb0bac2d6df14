package survey

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Counts are what ProbeConfigs' statuses add up to. A limit is a share of what configs in force probe.
type Counts struct{ Probed, ScaledDown int }

// CountsOf adds up configs.
func CountsOf(configs []v1alpha1.ProbeConfig) (sum Counts) {
	for i := range configs {
		sum.add(countsOf(&configs[i]), 1)
	}
	return sum
}

func (c *Counts) add(of Counts, times int) {
	c.Probed += of.Probed * times
	c.ScaledDown += of.ScaledDown * times
}

func countsOf(pc *v1alpha1.ProbeConfig) (c Counts) {
	t := pc.Status.Targets
	if t == nil {
		return c
	}
	c.ScaledDown = int(t.ScaledDown)
	if pc.Spec.Mode != v1alpha1.Observe && !meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ConditionAccepted) {
		c.Probed = int(t.Probed)
	}
	return c
}

// tally follows an informer of ProbeConfigs, so that a review needn't add up all there are.
type tally struct {
	synced func() bool
	mu     sync.Mutex
	of     map[types.NamespacedName]Counts
	sum    Counts
}

// follow begins to count; the informer may have begun before.
func (t *tally) follow(informer interface {
	AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}) error {
	registered, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { t.note(object, false) }, UpdateFunc: func(_, object any) { t.note(object, false) },
		DeleteFunc: func(object any) { t.note(object, true) },
	})
	if err == nil {
		t.synced = registered.HasSynced
	}
	return err
}

func (t *tally) note(object any, gone bool) {
	if left, isTombstone := object.(toolscache.DeletedFinalStateUnknown); isTombstone {
		object = left.Obj
	}
	pc, isConfig := object.(*v1alpha1.ProbeConfig)
	if !isConfig {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := types.NamespacedName{Namespace: pc.Namespace, Name: pc.Name}
	t.sum.add(t.of[key], -1)
	delete(t.of, key)
	if is := countsOf(pc); !gone && is != (Counts{}) {
		if t.of == nil {
			t.of = map[types.NamespacedName]Counts{}
		}
		t.of[key] = is
		t.sum.add(is, 1)
	}
}

// counts are those of all configs; not known before all of them were heard of.
func (t *tally) counts() (sum Counts, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum, t.synced != nil && t.synced()
}
