package weederconfig

import (
	"context"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// podWorkers are how many pods' deletions are noted in a status by one write at most, or are on their way.
	podWorkers = 256
	// senders are how many deletions are asked of the API server at once.
	senders       = 32
	configWorkers = 4
	// judges ask the API server what accounts may do, one question after the other.
	judges = 4
)

// Options are what the controllers for WeederConfigs need.
type Options struct {
	Guard *guard.Guard
	Facts *kube.Facts
	// OwnNamespace is where Autohealer's own pods run; "" when it runs outside the cluster.
	OwnNamespace string
	// Stored confirms just before an act that the rules in force are those that are stored.
	Stored *kube.Stored
	// Rejections learns which rules refuse which configs.
	Rejections *kube.Rejections
	// Leads says whether this replica surely leads, just before each act. Default: it does.
	Leads func() bool
}

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	pods, err := actuate.PodClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	observer := NewObserver(mgr.GetCache(), opts, report)
	current := &kube.Generations{Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stored: opts.Stored}
	weeder := &PodReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Troubles: &observer.policies.Troubles, Report: report,
		Book: &Book{Client: mgr.GetClient(), Observer: observer, Live: mgr.GetAPIReader(), Leads: opts.Leads, Meanwhile: func(ctx context.Context, d *weed.Deletion) {
			// The answer is kept for those who ask just before they act; so is an error, or they ask again.
			_ = current.Check(ctx, v1alpha1.GroupVersion.WithKind(kindWeederConfig), d.Key, d.Config, d.Generation)
		}},
		Pods: &actuate.Pods{
			Client: pods, Acts: mgr.GetLogger().WithName("acts"), Leads: opts.Leads,
			Current: current,
		},
		sending: semaphore.NewWeighted(senders),
	}
	configs := &policy.Keeper[*v1alpha1.WeederConfig]{
		Steps: observer.steps(), Client: mgr.GetClient(), Events: report.Events, Clock: opts.Facts.Clock, Urgent: observer.policies.Unseen, Leads: opts.Leads,
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "weederconfig-pod", weeder, podWorkers, observer.lead); err != nil {
		return err
	}
	return kube.AddController(mgr, "weederconfig", configs, configWorkers, observer.leadConfigs)
}
