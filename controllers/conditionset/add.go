package conditionset

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	nodeWorkers = 16
	setWorkers  = 4
)

// Options are what the controllers for ConditionSets need.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Stored confirms just before an act that the rules in force are those that are stored.
	Stored *kube.Stored
	// Rejections learns which rules refuse which sets.
	Rejections *kube.Rejections
	// Leads says whether this replica surely leads, just before each act. Default: it does.
	Leads func() bool
}

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(opts.Facts.Fleet); err != nil {
		return err
	}
	observer := NewObserver(mgr.GetCache(), opts.Guard, opts.Facts, opts.Rejections)
	report := NewReporter(mgr.GetEventRecorder("autohealer"), observer.knows)
	nodes := &NodeReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Troubles: &observer.policies.Troubles, Report: report, OwnNamespace: opts.OwnNamespace,
		Orphans: &kube.Orphans{
			Live: mgr.GetAPIReader(), Kind: v1alpha1.GroupVersion.WithKind(kindConditionSet), Confirm: opts.Facts.Fleet.ConfirmOrphan,
			Timings: opts.Facts.Timings,
		},
		Taints: &actuate.Taints{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName("acts"), Leads: opts.Leads,
			Current: &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stored: opts.Stored},
		},
	}
	sets := &policy.Keeper[*v1alpha1.ConditionSet]{
		Steps: observer.steps(), Client: mgr.GetClient(), Events: report.Events, Clock: opts.Facts.Clock, Urgent: observer.policies.Unseen, Leads: opts.Leads,
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "conditionset-node", nodes, nodeWorkers, observer.lead); err != nil {
		return err
	}
	return kube.AddController(mgr, "conditionset", sets, setWorkers, observer.leadSets)
}
