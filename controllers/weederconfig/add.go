package weederconfig

import (
	"context"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

const (
	// podWorkers are how many pods' deletions are noted in a status by one write at most, or are on their way.
	podWorkers = 256
	// senders are how many deletions are asked of the API server at once.
	senders       = 32
	configWorkers = 4
	// admissionWorkers ask the API server what accounts may do, one question after the other.
	admissionWorkers = 4
)

// AddToManager adds the observer and both controllers.
func AddToManager(mgr manager.Manager, opts policy.Options) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	pods, err := actuate.PodClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	report := NewReporter(mgr.GetEventRecorder("autohealer"))
	observer := NewObserver(mgr.GetCache(), opts, report)
	current := opts.Current(mgr)
	reconciler := &PodReconciler{
		Observer: observer, Live: mgr.GetAPIReader(), Troubles: &observer.policies.Troubles, Report: report,
		Recorder: &DeletionRecorder{Client: mgr.GetClient(), Observer: observer, Live: mgr.GetAPIReader(), Leads: opts.Leads, Prefetch: func(ctx context.Context, d *weeder.Deletion) {
			// The answer is kept for those who ask just before they act; so is an error, or they ask again.
			_ = current.Check(ctx, v1alpha1.GroupVersion.WithKind(kindWeederConfig), d.Key, d.Config, d.Generation)
		}},
		Pods: &actuate.Pods{
			Client: pods, Acts: mgr.GetLogger().WithName(kube.HistoryLogger), Leads: opts.Leads,
			Current: current,
		},
		sending: semaphore.NewWeighted(senders),
	}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	if err := kube.AddController(mgr, "weederconfig-pod", reconciler, podWorkers, observer.attachPods); err != nil {
		return err
	}
	steps := observer.steps()
	steps.Gone = func(config types.NamespacedName) {
		forgetStates(config)
		reconciler.Recorder.forget(config)
	}
	configs := &policy.Keeper[*v1alpha1.WeederConfig]{Steps: steps, Clock: opts.Facts.Clock, Urgent: observer.policies.Unseen, Leads: opts.Leads}
	return configs.AddToManager(mgr, "weederconfig", configWorkers, observer.attachConfigs)
}
