package conditionset

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/status"
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
	troubles := &status.Troubles{Hit: func(set types.NamespacedName) { observer.enqueueSet(set.Name) }}
	report := NewReporter(mgr.GetEventRecorder("autohealer"), observer.knows)
	nodes := &NodeReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Troubles: troubles, Report: report, OwnNamespace: opts.OwnNamespace,
		Orphans: &kube.Orphans{
			Live: mgr.GetAPIReader(), Kind: v1alpha1.GroupVersion.WithKind(kindConditionSet), Confirm: opts.Facts.Fleet.ConfirmOrphan,
			Timings: opts.Facts.Timings,
		},
		Taints: &actuate.Taints{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName("acts"), Leads: opts.Leads,
			Current: &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stored: opts.Stored},
		},
	}
	sets := &Reconciler{Client: mgr.GetClient(), Observer: observer, Troubles: troubles, Report: report, Leads: opts.Leads}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "conditionset-node", nodes, nodeWorkers, func(q kube.Queue) { observer.attach(q, nil) }); err != nil {
		return err
	}
	return kube.AddController(mgr, "conditionset", sets, setWorkers, func(q kube.Queue) { observer.attach(nil, q) })
}
