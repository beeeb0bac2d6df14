package policy

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Options are what the controllers of every kind need.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Stored confirms just before an act that the rules in force are those that are stored.
	Stored *kube.Stored
	// Rejections learns which rules refuse which policies.
	Rejections *kube.Rejections
	// Leads says whether this replica surely leads, just before each act and each status. Default: it does.
	Leads func() bool
}

// Current confirms just before an act that a policy and the rules are stored as they were judged.
func (o *Options) Current(mgr manager.Manager) *kube.Generations {
	return &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stored: o.Stored}
}

// AddToManager adds a controller of this name that keeps the policies, with the manager's client, recorder and clock where the keeper has
// none; lead takes its queue once this replica leads.
func (k *Keeper[T]) AddToManager(mgr manager.Manager, name string, workers int, lead func(kube.Queue)) error {
	k.Client = mgr.GetClient()
	if k.Events == nil {
		k.Events = mgr.GetEventRecorder("autohealer")
	}
	if k.Clock == nil {
		k.Clock = clock.RealClock{}
	}
	return kube.AddController(mgr, name, k, workers, lead)
}
