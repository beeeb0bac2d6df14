package conditionset

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

const (
	nodeWorkers = 16
	setWorkers  = 4
	// A foreign writer that keeps winning mustn't push us into minutes of back-off.
	shortestRetry = 5 * time.Millisecond
	longestRetry  = 5 * time.Second
)

// Options are what the controllers for ConditionSets need.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Leads says whether this replica surely leads, just before each act. Default: it does.
	Leads func() bool
}

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	observer := &Observer{Cache: mgr.GetCache(), Guard: opts.Guard, Facts: opts.Facts}
	trouble := &Trouble{hit: func(set string) { observer.enqueueSet(set) }}
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	nodes := &NodeReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Trouble: trouble, Report: report, OwnNamespace: opts.OwnNamespace,
		Orphans: &Orphans{Live: mgr.GetAPIReader(), Confirm: opts.Facts.Fleet.ConfirmOrphan},
		Taints: &actuate.Taints{
			Client: mgr.GetClient(), Acts: mgr.GetLogger().WithName("acts"), Leads: opts.Leads,
			Current: &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}},
		},
	}
	sets := &Reconciler{Client: mgr.GetClient(), Observer: observer, Trouble: trouble, Report: report, Leads: opts.Leads}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := addController(mgr, "conditionset-node", nodes, nodeWorkers, func(q queue) { observer.attach(q, nil) }); err != nil {
		return err
	}
	return addController(mgr, "conditionset", sets, setWorkers, func(q queue) { observer.attach(nil, q) })
}

// addController adds a controller that the observer feeds: one set of informer handlers serves leader and standby alike.
func addController(mgr manager.Manager, name string, r reconcile.Reconciler, workers int, attach func(queue)) error {
	c, err := controller.New(name, mgr, controller.Options{
		Reconciler: r, MaxConcurrentReconciles: workers,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](shortestRetry, longestRetry),
	})
	if err != nil {
		return err
	}
	return c.Watch(source.Func(func(_ context.Context, q queue) error {
		attach(q)
		return nil
	}))
}
